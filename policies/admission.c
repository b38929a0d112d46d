/*
 * Growth is what a request adds to the tenant's use: all of it but the chunks that the tenant gave
 * back and takes again. Creation is what it takes from the device's free memory: growth less the
 * clean chunks. "Never" compares with limits alone, "now" with limits less use.
 */
#include "policies/admission.h"

#include <assert.h>

static const char *const verdict_names[] = {
    [ADMISSION_ADMIT] = "admit",
    [ADMISSION_WAIT] = "wait",
    [ADMISSION_REFUSE] = "refuse",
};
static_assert(ARRAY_SIZE(verdict_names) == ADMISSION_VERDICT_MAX, "one name for each verdict");

const char *admission_verdict_name(enum admission_verdict verdict)
{
    return (unsigned) verdict < ADMISSION_VERDICT_MAX ? verdict_names[verdict] : "unknown";
}

static struct admission_decision decided(
    enum admission_verdict verdict, enum gmb_limit limit, uint64_t available_bytes)
{
    return (struct admission_decision){verdict, limit, available_bytes};
}

/* Whether the limits allow it at all, were everything else given back. */
static bool refuse_for_ever(const struct admission_view *view, struct admission_decision *ret)
{
    uint64_t whole = add_saturate(view->held, view->requested);
    uint64_t promised = sub_saturate(view->capacity, view->others_min);

    if (whole > view->max)
        *ret = decided(ADMISSION_REFUSE, GMB_LIMIT_MEMORY_MAX, sub_saturate(view->max, view->held));
    else if (whole > view->capacity)
        *ret =
            decided(ADMISSION_REFUSE, GMB_LIMIT_DEVICE, sub_saturate(view->capacity, view->held));
    else if (whole > promised)
        *ret = decided(ADMISSION_REFUSE, GMB_LIMIT_GUARANTEED, sub_saturate(promised, view->held));
    else
        return false;
    return true;
}

struct admission_decision admission_decide(const struct admission_view *view)
{
    uint64_t growth = sub_saturate(view->requested, view->recycled);
    uint64_t creation = sub_saturate(growth, view->ready);
    uint64_t headroom = sub_saturate(view->max, view->used);
    uint64_t unused_min = sub_saturate(view->min, view->used);
    uint64_t present = add_saturate(view->free, view->clean);
    uint64_t unpromised = sub_saturate(present, view->others_unused_min);
    uint64_t shared = sub_saturate(unpromised, view->reserved);
    uint64_t own = MIN(unused_min, present);
    uint64_t grantable = MAX(shared, own);
    struct admission_decision never;

    if (refuse_for_ever(view, &never))
        return never;
    if (growth > headroom)
        return decided(
            ADMISSION_WAIT, GMB_LIMIT_MEMORY_MAX, add_saturate(headroom, view->recycled));
    if (creation > view->free)
        return decided(ADMISSION_WAIT, GMB_LIMIT_DEVICE,
            add_saturate(view->free, add_saturate(view->recycled, view->ready)));
    if (growth > grantable)
        return decided(ADMISSION_WAIT,
            growth > unpromised ? GMB_LIMIT_GUARANTEED : GMB_LIMIT_DEVICE,
            add_saturate(grantable, view->recycled));
    return decided(ADMISSION_ADMIT, GMB_LIMIT_NONE, 0);
}
