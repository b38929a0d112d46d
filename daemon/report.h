/*
 * The ledger as operators see it: fills replies from the core's views. A page holds what surely
 * fits in one frame. `reply` must live as long as the reply is used; nothing is allocated.
 */
#pragma once

#include "daemon/broker.h"
#include "proto/gmb.pb-c.h"

/* Entries of a page. A ClientStatus takes at most ~450 bytes, so 128 of them fit in 64 KiB. */
#define REPORT_ENTRIES 128
/* SegmentStatus of a page: at most ~560 bytes each. */
#define REPORT_SEGMENTS 96
/* TenantPressures of a page: at most 500 bytes each without their devices, of 120 each. */
#define REPORT_PRESSURES 48
/* TenantDevices of a page: at most 180 bytes each. */
#define REPORT_DEVICES 256

struct report {
    Gmb__ControlReply message;
    union {
        Gmb__Status status;
        Gmb__TenantPage tenant_page;
        Gmb__ClientPage client_page;
        Gmb__LeasePage lease_page;
        Gmb__TenantChanged tenant_changed;
        Gmb__Reloaded reloaded;
        Gmb__ReclaimPlan plan;
        Gmb__Drained drained;
        Gmb__PressurePage pressure_page;
        Gmb__SegmentPage segment_page;
        Gmb__SegmentChanged segment_changed;
        Gmb__Error error;
    } body;
    union {
        struct {
            Gmb__DeviceStatus items[LIMIT_DEVICES];
            Gmb__DeviceStatus *pointers[LIMIT_DEVICES];
        } devices;
        struct {
            Gmb__TenantStatus items[REPORT_ENTRIES];
            Gmb__TenantStatus *pointers[REPORT_ENTRIES];
            struct core_tenant_view views[REPORT_ENTRIES];
        } tenants;
        struct {
            Gmb__ClientStatus items[REPORT_ENTRIES];
            Gmb__ClientStatus *pointers[REPORT_ENTRIES];
        } clients;
        struct {
            Gmb__LeaseStatus items[REPORT_ENTRIES];
            Gmb__LeaseStatus *pointers[REPORT_ENTRIES];
            char tenants[REPORT_ENTRIES][LIMIT_NAME_BYTES + 1];
        } leases;
        struct {
            Gmb__SegmentStatus items[REPORT_SEGMENTS];
            Gmb__SegmentStatus *pointers[REPORT_SEGMENTS];
            char tenants[REPORT_SEGMENTS][LIMIT_NAME_BYTES + 1];
        } segments;
        struct {
            Gmb__ReclaimStep items[REPORT_ENTRIES];
            Gmb__ReclaimStep *pointers[REPORT_ENTRIES];
            char tenants[REPORT_ENTRIES][LIMIT_NAME_BYTES + 1];
        } steps;
        struct {
            Gmb__DevicePressure devices[LIMIT_DEVICES], *device_pointers[LIMIT_DEVICES];
            Gmb__TenantPressure items[REPORT_PRESSURES], *pointers[REPORT_PRESSURES];
            struct core_tenant_view views[REPORT_PRESSURES];
            Gmb__TenantDevicePressure uses[REPORT_DEVICES], *use_pointers[REPORT_DEVICES];
            Gmb__Stall stalls[REPORT_DEVICES][STALL_LINE_MAX];
            Gmb__AdviceStep steps[REPORT_PRESSURES][LADDER_ACTION_MAX];
            Gmb__AdviceStep *step_pointers[REPORT_PRESSURES][LADDER_ACTION_MAX];
            Gmb__AdviceAnswer answers[REPORT_PRESSURES][LADDER_ACTION_MAX];
            Gmb__AdviceAnswer *answer_pointers[REPORT_PRESSURES][LADDER_ACTION_MAX];
        } pressures;
    } list;
    Gmb__TenantDevice tenant_devices[REPORT_DEVICES];
    Gmb__TenantDevice *tenant_device_pointers[REPORT_DEVICES];
    char text[LIMIT_TEXT_BYTES];
};

/* Begins a reply whose body is of that kind. */
void report_begin(struct report *report, Gmb__ControlReply__BodyCase body);
ProtobufCBinaryData report_uuid(const struct broker *broker, uint32_t device);

void report_status(const struct broker *broker, struct report *report);
void report_tenants(const struct broker *broker, const char *after, struct report *report);
/* One of them, by the core's index; false when there is none. */
bool report_tenant(const struct broker *broker, uint32_t tenant, struct report *report);
void report_clients(const struct broker *broker, uint64_t after, struct report *report);
void report_leases(const struct broker *broker, uint64_t after, struct report *report);
void report_segments(const struct broker *broker, uint64_t after, struct report *report);
void report_segment_changed(struct report *report, uint32_t segments);
void report_tenant_changed(const struct broker *broker, uint32_t tenant, struct report *report);
void report_reloaded(const struct broker *broker, struct report *report);
/* A plan, and its steps one by one: false when no more fit. */
void report_plan_begin(struct report *report, uint64_t planned, const char *shortfall);
bool report_plan_add(struct report *report, const char *tenant, const struct survey_row *row,
    const struct reclaim_chunk *chunk, const struct reclaim_step *step);
/* Devices with the first page, then the tenants behind `after`. */
void report_pressures(const struct broker *broker, const char *after, struct report *report);
void report_drained(struct report *report, uint64_t moved_bytes, uint64_t left_bytes);
void report_error(struct report *report, enum gmb_status status, enum gmb_limit limit,
    const char *format, ...) _printf_(4, 5);
