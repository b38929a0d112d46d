/* The broker drops a peer whose text breaks the rules: labels and names are the application's. */
#include "client/text.h"

#include <string.h>

#include "proto/wire.h"

void text_clean(char *ret, size_t size, const char *text)
{
    size_t left = text != NULL ? strlen(text) : 0, used = 0;

    while (left > 0) {
        size_t length = wire_text_length((const uint8_t *) text, left);
        size_t step = MAX(length, (size_t) 1);

        if (used + step >= size)
            break;
        if (length == 0)
            ret[used] = '?';
        else
            memcpy(ret + used, text, length);
        used += step;
        text += step;
        left -= step;
    }
    ret[used] = '\0';
}
