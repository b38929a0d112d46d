/* See uuid.h. */
#include "daemon/uuid.h"

#include <errno.h>
#include <string.h>

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

int uuid_parse(const char *text, uint8_t ret_uuid[UUID_BYTES])
{
    uint8_t uuid[UUID_BYTES];
    size_t at = 0;

    if (strncmp(text, "GPU-", 4) == 0 || strncmp(text, "MIG-", 4) == 0)
        text += 4;
    while (at < UUID_BYTES) {
        int high, low;

        if ((at == 4 || at == 6 || at == 8 || at == 10) && *text++ != '-')
            return -EINVAL;
        high = hex_digit(text[0]);
        low = high < 0 ? -1 : hex_digit(text[1]);
        if (low < 0)
            return -EINVAL;
        uuid[at++] = (uint8_t) (high << 4 | low);
        text += 2;
    }
    if (*text != '\0')
        return -EINVAL;
    memcpy(ret_uuid, uuid, sizeof(uuid));
    return 0;
}
