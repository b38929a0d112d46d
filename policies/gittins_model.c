/* Hazards by class and age, and the index that follows from them. See gittins_model.h. */
#include "policies/gittins_model.h"

#include <string.h>

#define BIN_GROWTH 1.3
#define PRIOR_LIVES 20.0 /* weight of the common hazard in a class, in lives */
#define FADE 0.99
#define HAZARD_MAX 0.999

#define STATES (GITTINS_CLASSES * GITTINS_BINS)

void gittins_model_init(struct gittins_model *model)
{
    double edge = 0, width = 1;

    memset(model, 0, sizeof(*model));
    for (unsigned bin = 0; bin <= GITTINS_BINS; bin++) {
        model->edges[bin] = edge;
        edge += width;
        width *= BIN_GROWTH;
    }
    gittins_model_learn(model);
}

unsigned gittins_model_bin(const struct gittins_model *model, uint64_t age)
{
    unsigned low = 0, high = GITTINS_BINS;

    while (high - low > 1) {
        unsigned middle = (low + high) / 2;

        if ((double) age >= model->edges[middle])
            low = middle;
        else
            high = middle;
    }
    return low;
}

/* Lives of a class that reached each bin; one that ends or stands inside a bin was there for half.
 */
static void lives_at_risk(
    const struct gittins_model *model, unsigned class, double ret_risk[GITTINS_BINS])
{
    double beyond = 0;

    for (unsigned bin = GITTINS_BINS; bin-- > 0;) {
        double unfinished = model->cut[class][bin] + model->going[class][bin];

        ret_risk[bin] = beyond + model->hits[class][bin] + unfinished / 2;
        beyond += model->hits[class][bin] + unfinished;
    }
}

/* Best ratio of hits to time held, starting at each bin. */
static void class_worth(const struct gittins_model *model, const double hazard[GITTINS_BINS],
    double ret_worth[GITTINS_BINS])
{
    for (unsigned from = 0; from < GITTINS_BINS; from++) {
        double hit = 0, held = 0, alive = 1, best = 0;

        for (unsigned bin = from; bin < GITTINS_BINS; bin++) {
            double now = alive * hazard[bin];

            hit += now;
            held += (model->edges[bin + 1] - model->edges[bin]) * (alive - now / 2);
            alive -= now;
            best = MAX(best, hit / held);
        }
        ret_worth[from] = best;
    }
}

struct worth {
    double value;
    uint16_t state;
};

static int worth_compare(const void *left, const void *right)
{
    const struct worth *a = left, *b = right;

    if (a->value != b->value)
        return a->value < b->value ? -1 : 1;
    return (int) a->state - (int) b->state; /* the same order on every machine */
}

static void states_rank(struct gittins_model *model, struct worth worths[STATES])
{
    qsort(worths, STATES, sizeof(*worths), worth_compare);
    for (unsigned i = 0; i < STATES; i++) {
        model->state[i] = worths[i].state;
        model->rank[worths[i].state / GITTINS_BINS][worths[i].state % GITTINS_BINS] = (uint16_t) i;
    }
}

void gittins_model_learn(struct gittins_model *model)
{
    double common_hits[GITTINS_BINS] = {0}, common_risk[GITTINS_BINS] = {0};
    double risk[GITTINS_CLASSES][GITTINS_BINS];
    struct worth worths[STATES];

    for (unsigned class = 0; class < GITTINS_CLASSES; class ++) {
        lives_at_risk(model, class, risk[class]);
        for (unsigned bin = 0; bin < GITTINS_BINS; bin++) {
            common_hits[bin] += model->hits[class][bin];
            common_risk[bin] += risk[class][bin];
        }
    }
    for (unsigned class = 0; class < GITTINS_CLASSES; class ++) {
        double hazard[GITTINS_BINS], worth[GITTINS_BINS];

        for (unsigned bin = 0; bin < GITTINS_BINS; bin++) {
            double common = common_hits[bin] / (common_risk[bin] + 1);

            hazard[bin] = MIN(HAZARD_MAX, (model->hits[class][bin] + PRIOR_LIVES * common) /
                                              (risk[class][bin] + PRIOR_LIVES));
        }
        class_worth(model, hazard, worth);
        for (unsigned bin = 0; bin < GITTINS_BINS; bin++) {
            uint16_t state = (uint16_t) (class * GITTINS_BINS + bin);

            worths[state] = (struct worth){worth[bin], state};
            model->hits[class][bin] *= FADE;
            model->cut[class][bin] *= FADE;
        }
    }
    states_rank(model, worths);
}
