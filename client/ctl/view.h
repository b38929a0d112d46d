/* What each command shows of what the broker answered. Each is -ENOMEM or -EIO as table_print(). */
#pragma once

#include <stdio.h>

#include "client/ctl/control.h"

struct table;

struct view {
    FILE *to;
    bool colour;
};

/* The first group of the UUID tells devices of one node apart; status has the whole. */
void view_device_cell(struct table *table, const ProtobufCBinaryData *data, bool mig);

int view_status(const struct view *view, const Gmb__Status *status) _must_check_;
int view_tenants(const struct view *view, const struct listing *tenants) _must_check_;
int view_clients(const struct view *view, const struct listing *clients) _must_check_;
int view_segments(const struct view *view, const struct listing *segments) _must_check_;
int view_segment_changed(
    const struct view *view, const Gmb__SegmentChanged *changed, const char *done) _must_check_;
int view_leases(const struct view *view, const struct listing *leases) _must_check_;
/* Of PRESSURE_GET. */
int view_pressure(const struct view *view, const struct listing *pressures) _must_check_;
/* All of it, for a collector: OpenMetrics text. */
int view_metrics(const struct view *view, const Gmb__Status *status, const struct listing *tenants,
    const struct listing *pressures) _must_check_;
int view_changed(
    const struct view *view, const char *tenant, const Gmb__TenantChanged *changed) _must_check_;
int view_plan(const struct view *view, const Gmb__ReclaimPlan *plan, uint64_t asked_bytes,
    bool dry_run) _must_check_;
int view_drained(const struct view *view, const Gmb__Drained *drained, bool undo) _must_check_;
int view_reloaded(const struct view *view, const Gmb__Reloaded *reloaded) _must_check_;
