/* uuid_parse() and uuid_format(): one form, digits in either case, outputs untouched on failure. */
#include "base/uuid.h"

#include <errno.h>
#include <string.h>

#include "tests/unit/unit.h"

START_TEST(uuid_is_its_digits_in_order)
{
    static const uint8_t expected[UUID_BYTES] = {
        0x01, 0x23, 0x45, 0x67, 0x89, 0xab, 0xcd, 0xef, 0, 1, 2, 3, 4, 5, 6, 0xff};
    struct uuid uuid;

    ck_assert_int_eq(uuid_parse("GPU-01234567-89ab-cdef-0001-0203040506ff", &uuid), 0);
    ck_assert_mem_eq(uuid.bytes, expected, UUID_BYTES);
}
END_TEST

START_TEST(uuids_are_read_as_they_are_written)
{
    static const char *const wrong[] = {"", "GPU-", "GPU-00112233-4455-6677-8899-aabbccddeef",
        "GPU-00112233-4455-6677-8899-aabbccddeeff0", "00112233445566778899aabbccddeeff",
        "GPU-0011223g-4455-6677-8899-aabbccddeeff", "gpu-00112233-4455-6677-8899-aabbccddeeff",
        "GPU-00112233-4455-6677-8899-aabbccddeef-"};
    static const char *const right[] = {"GPU-00112233-4455-6677-8899-aabbccddeeff",
        "MIG-00112233-4455-6677-8899-aabbccddeeff", "00112233-4455-6677-8899-AABBCCDDEEFF"};
    char text[UUID_TEXT_MAX];
    static const struct uuid nil;
    struct uuid uuid = {0};

    for (size_t i = 0; i < ARRAY_SIZE(wrong); i++)
        ck_assert_msg(uuid_parse(wrong[i], &uuid) == -EINVAL, "%s", wrong[i]);
    ck_assert(uuid_equal(&uuid, &nil));
    for (size_t i = 0; i < ARRAY_SIZE(right); i++) {
        ck_assert_int_eq(uuid_parse(right[i], &uuid), 0);
        ck_assert_str_eq(uuid_format(text, &uuid), "GPU-00112233-4455-6677-8899-aabbccddeeff");
    }
}
END_TEST

START_TEST(uuid_has_sixteen_bytes)
{
    static const uint8_t bytes[UUID_BYTES + 1] = {1, 2, 3};
    struct uuid uuid, same = {{1, 2, 3}}, other = {{1, 2, 4}};

    ck_assert_int_eq(uuid_from_bytes(bytes, UUID_BYTES - 1, &uuid), -EINVAL);
    ck_assert_int_eq(uuid_from_bytes(bytes, UUID_BYTES + 1, &uuid), -EINVAL);
    ck_assert_int_eq(uuid_from_bytes(bytes, UUID_BYTES, &uuid), 0);
    ck_assert(uuid_equal(&uuid, &same));
    ck_assert(!uuid_equal(&uuid, &other));
}
END_TEST

UNIT_MAIN("base uuid", uuid_is_its_digits_in_order, uuids_are_read_as_they_are_written,
    uuid_has_sixteen_bytes)
