/* One pass over the text: digits in pairs, dashes exactly where they belong. */
#include "base/uuid.h"

#include <errno.h>
#include <string.h>

static const char digits[] = "0123456789abcdef";

/* Whether a dash stands before byte `index`: 8-4-4-4-12 digits. */
static bool dash_before(size_t index)
{
    return index == 4 || index == 6 || index == 8 || index == 10;
}

char *uuid_format(char buffer[UUID_TEXT_MAX], const struct uuid *uuid)
{
    char *at = buffer;

    memcpy(at, "GPU-", 4);
    at += 4;
    for (size_t i = 0; i < UUID_BYTES; i++) {
        if (dash_before(i))
            *at++ = '-';
        *at++ = digits[uuid->bytes[i] >> 4];
        *at++ = digits[uuid->bytes[i] & 0xf];
    }
    *at = '\0';
    return buffer;
}

char *uuid_format_device(char buffer[UUID_TEXT_MAX], const struct uuid *uuid, bool mig)
{
    uuid_format(buffer, uuid);
    if (mig)
        memcpy(buffer, "MIG-", 4);
    return buffer;
}

bool uuid_is_mig(const char *text)
{
    return strncmp(text, "MIG-", 4) == 0;
}

static int digit_parse(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int uuid_parse(const char *text, struct uuid *ret)
{
    struct uuid uuid;

    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        text += 4;
    for (size_t i = 0; i < UUID_BYTES; i++) {
        int high, low;

        if (dash_before(i) && *text++ != '-')
            return -EINVAL;
        high = digit_parse(text[0]);
        low = high < 0 ? -1 : digit_parse(text[1]);
        if (low < 0)
            return -EINVAL;
        uuid.bytes[i] = (uint8_t) (high << 4 | low);
        text += 2;
    }
    if (*text != '\0')
        return -EINVAL;
    *ret = uuid;
    return 0;
}

int uuid_from_bytes(const uint8_t *bytes, size_t size, struct uuid *ret)
{
    if (size != UUID_BYTES)
        return -EINVAL;
    memcpy(ret->bytes, bytes, UUID_BYTES);
    return 0;
}

bool uuid_equal(const struct uuid *a, const struct uuid *b)
{
    return memcmp(a->bytes, b->bytes, UUID_BYTES) == 0;
}
