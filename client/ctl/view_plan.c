/* What is taken from whom, and why. */
#include <errno.h>
#include <inttypes.h>

#include "base/size.h"
#include "client/ctl/table.h"
#include "client/ctl/view.h"

static const char *const step_headings[] = {
    "<TENANT", "LEASE", "CHUNK", "SIZE", "RESIDENT", "SCORE", "<REASON"};

static void step_add(struct table *table, const Gmb__ReclaimStep *step)
{
    table_cell(table, STYLE_PLAIN, "%s", step->tenant);
    table_cell(table, STYLE_PLAIN, "%" PRIu64, step->lease);
    table_cell(table, STYLE_PLAIN, "%u", step->chunk);
    table_size(table, STYLE_PLAIN, step->bytes);
    table_cell(table, STYLE_PLAIN, "%u", step->resident_pages);
    table_cell(table, STYLE_PLAIN, "%.0f", step->score);
    table_cell(table, STYLE_PLAIN, "%s", step->reason);
}

int view_plan(
    const struct view *view, const Gmb__ReclaimPlan *plan, uint64_t asked_bytes, bool dry_run)
{
    _cleanup_(table_free_ptr) struct table *table =
        table_new(step_headings, ARRAY_SIZE(step_headings));
    char planned[SIZE_TEXT_MAX], asked[SIZE_TEXT_MAX];

    for (size_t i = 0; table != NULL && i < plan->n_steps; i++)
        step_add(table, plan->steps[i]);
    (void) fprintf(view->to, "%s of %s %s%s%s\n\n", size_format(planned, plan->planned_bytes),
        size_format(asked, asked_bytes), dry_run ? "would be taken" : "are being taken",
        plan->shortfall[0] != '\0' ? ": " : "", plan->shortfall);
    return table_print(table, view->to, view->colour);
}

int view_drained(const struct view *view, const Gmb__Drained *drained, bool undo)
{
    char moved[SIZE_TEXT_MAX], left[SIZE_TEXT_MAX];

    if (undo)
        (void) fprintf(view->to, "the device is in use again\n");
    else
        (void) fprintf(view->to,
            "nothing new is granted there; %s are being moved away, %s can't be moved now\n",
            size_format(moved, drained->moved_bytes), size_format(left, drained->left_bytes));
    return ferror(view->to) ? -EIO : 0;
}
