/* What the command line takes and what it refuses. */
#include "client/replay/options.h"

#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "tests/unit/unit.h"

#define ARGS_MAX 16

/* Parses a line of words. */
static int parse(const char *line, struct options *ret)
{
    static char words[512];
    char *argv[ARGS_MAX + 2] = {(char *) (uintptr_t) "gmb-replay"}, *rest = words;
    int argc = 1;

    (void) snprintf(words, sizeof(words), "%s", line);
    for (char *word = strtok_r(words, " ", &rest); word; word = strtok_r(NULL, " ", &rest))
        argv[argc++] = word;
    return options_parse(argc, argv, ret);
}

START_TEST(test_defaults_are_the_documented_ones)
{
    struct options options;

    ck_assert_int_eq(parse("", &options), OPTIONS_OK);
    ck_assert_ptr_null(options.trace);
    ck_assert_uint_eq(options.tenants, 0);
    ck_assert_uint_eq(options.workers, 2);
    ck_assert_uint_eq(options.kv_bytes_per_token, 131072);
    ck_assert_double_eq(options.prefill_rate, 20000);
    ck_assert_double_eq(options.decode_rate, 40);
    ck_assert_uint_eq(options.scale, 0);
    ck_assert_uint_eq(options.wait_ns, 60 * NSEC_PER_SEC);
    options_free(&options);
}
END_TEST

START_TEST(test_every_option_arrives)
{
    struct options options;

    ck_assert_int_eq(parse("--trace t --tenants chat,batch --workers 3 --config c "
                           "--kv-bytes-per-token 128K --limit 5",
                         &options),
        OPTIONS_OK);
    ck_assert_str_eq(options.trace, "t");
    ck_assert_uint_eq(options.tenants, 2);
    ck_assert_uint_eq(options.name_count, 2);
    ck_assert_str_eq(options.names[1], "batch");
    ck_assert_uint_eq(options.workers, 3);
    ck_assert_str_eq(options.config, "c");
    ck_assert_uint_eq(options.kv_bytes_per_token, 131072);
    ck_assert_uint_eq(options.limit, 5);
    options_free(&options);
    ck_assert_int_eq(parse("--prefill-rate 1e4 --decode-rate 2.5 --speed 60 --scale 64 --seed 9 "
                           "--device-memory 1G --json -",
                         &options),
        OPTIONS_OK);
    ck_assert_double_eq(options.prefill_rate, 10000);
    ck_assert_double_eq(options.decode_rate, 2.5);
    ck_assert_double_eq(options.speed, 60);
    ck_assert_uint_eq(options.scale, 64);
    ck_assert_uint_eq(options.seed, 9);
    ck_assert_uint_eq(options.device_memory, UINT64_C(1) << 30);
    ck_assert_str_eq(options.json, "-");
    options_free(&options);
    ck_assert_int_eq(parse("--socket s --control t --wait 0.5 --tenants 4", &options), OPTIONS_OK);
    ck_assert_str_eq(options.socket, "s");
    ck_assert_str_eq(options.control, "t");
    ck_assert_uint_eq(options.wait_ns, NSEC_PER_SEC / 2);
    ck_assert_uint_eq(options.tenants, 4);
    options_free(&options);
    ck_assert_int_eq(
        parse("--arena --think 2.5 --priorities 200,0,1000 --device-memory 60%", &options),
        OPTIONS_OK);
    ck_assert(options.arena);
    ck_assert_double_eq(options.think, 2.5);
    ck_assert_uint_eq(options.priorities.count, 3);
    ck_assert_uint_eq(options.priorities.values[2], 1000);
    ck_assert_uint_eq(options.device_percent, 60);
    ck_assert_uint_eq(options.device_memory, 0);
    options_free(&options);
    ck_assert_int_eq(parse("--arena --ladder default --load 130% --batch 12 "
                           "--request-priorities 100,10",
                         &options),
        OPTIONS_OK);
    ck_assert_str_eq(options.ladder, "default");
    ck_assert_uint_eq(options.load_percent, 130);
    ck_assert_uint_eq(options.batch, 12);
    ck_assert_uint_eq(options.request_priorities.count, 2);
    ck_assert_uint_eq(options.request_priorities.values[1], 10);
    ck_assert_uint_eq(options.priorities.count, 0);
    options_free(&options);
    ck_assert_int_eq(
        parse("--trace t --policy default --blocks 2147483648 --bound", &options), OPTIONS_OK);
    ck_assert_str_eq(options.policy, "default");
    ck_assert_uint_eq(options.blocks, UINT64_C(1) << 31);
    ck_assert(options.bound);
    options_free(&options);
}
END_TEST

START_TEST(test_what_makes_no_sense_is_refused)
{
    static const char *const bad[] = {"--workers 0", "--workers -1", "--tenants 0",
        "--tenants a,,b", "--tenants a,a", "--tenants 257", "--scale 0", "--speed 0", "--speed inf",
        "--limit 0", "--limit x", "--device-memory 0", "--device-memory infinity", "--wait 3601",
        "--nothing", "--trace", "word", "--socket s --config c", "--socket s --device-memory 1G",
        "--control c", "--tenants 256 --workers 5", "--seed -1", "--think 1", "--arena --think 0",
        "--load 130", "--load 0%", "--load 130% --device-memory 1G", "--load 130% --socket s",
        "--load 130% --device-memory 60%", "--ladder none", "--batch 4", "--request-priorities 1",
        "--arena --batch 0", "--arena --ladder default --config c",
        "--arena --ladder default --socket s", "--arena --request-priorities 1001",
        "--device-memory 0%", "--device-memory 1001%", "--device-memory %", "--priorities 1001",
        "--priorities 1,,2", "--priorities x", "--priorities 1 --config c",
        "--priorities 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17",
        "--trace t --policy lru --blocks 5 --arena", "--prefill-rate -5", "--trace t --policy lru",
        "--policy lru --blocks 5", "--trace t --blocks 5", "--bound",
        "--trace t --policy lru --blocks 0", "--trace t --policy lru --blocks 2147483649",
        "--trace t --policy clock --blocks 5", "--trace t --policy lru --blocks 5 --socket s"};
    struct options options;

    for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
        ck_assert_msg(parse(bad[i], &options) == OPTIONS_WRONG, "'%s'", bad[i]);
    ck_assert_int_eq(parse("--tenants 256 --workers 4", &options), OPTIONS_OK);
    options_free(&options);
    ck_assert_int_eq(parse("--help", &options), OPTIONS_HELP);
    ck_assert_int_eq(parse("--version", &options), OPTIONS_VERSION);
}
END_TEST

UNIT_MAIN("replay_options", test_defaults_are_the_documented_ones, test_every_option_arrives,
    test_what_makes_no_sense_is_refused)
