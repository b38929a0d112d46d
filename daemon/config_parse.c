/*
 * inih finds keys and values; sections are found here, line by line, before inih sees them: it cuts
 * section names at 50 characters, says nothing of empty sections and joins indented lines to the
 * value before. So each header is replaced by a short stand-in, indentation is dropped, and the
 * line that inih is at is always known.
 */
#include "daemon/config_parse.h"

#include <ctype.h>
#include <errno.h>
#include <ini.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum section_type {
    SECTION_NONE, /* before the first header */
    SECTION_BROKER,
    SECTION_DEVICE,
    SECTION_TENANT,
    SECTION_GROUP,
    SECTION_MAX
};

#define SECTION_WORDS 4

/* What the reader and the handler share while inih runs. */
struct reading {
    struct config_parser *parser;
    const char *file;
    const char *text, *end;
    unsigned line;
    enum section_type section;
    uint32_t tenant;
    bool all_devices;
    uint32_t device;
};

void config_fail(struct config_parser *parser, int result, const char *file, unsigned line,
    const char *format, ...)
{
    char text[CONFIG_REASON_BYTES];
    va_list args;

    if (parser->result < 0)
        return;
    va_start(args, format);
    (void) vsnprintf(text, sizeof(text), format, args);
    va_end(args);
    parser->result = result;
    if (line > 0)
        (void) snprintf(parser->error, CONFIG_ERROR_BYTES, "%.200s:%u: %s", file, line, text);
    else
        (void) snprintf(parser->error, CONFIG_ERROR_BYTES, "%.200s: %s", file, text);
}

#define reading_fail(reading, ...)                                                                 \
    config_fail((reading)->parser, -EINVAL, (reading)->file, (reading)->line, __VA_ARGS__)

/* ------------------------------------------------------------------ section headers */

/* Room for one more tenant or group. False after an error. */
static bool tenants_grow(struct reading *reading)
{
    struct config *config = reading->parser->config;
    struct core_tenant_config *tenants;
    struct config_share *shares;

    if (config->tenant_count >= LIMIT_TENANTS) {
        reading_fail(reading, "more than %d tenants and share groups", LIMIT_TENANTS);
        return false;
    }
    tenants = reallocarray(config->tenants, config->tenant_count + 1, sizeof(*tenants));
    if (tenants != NULL)
        config->tenants = tenants;
    shares = reallocarray(config->shares, config->tenant_count + 1, sizeof(*shares));
    if (shares != NULL)
        config->shares = shares;
    if (tenants == NULL || shares == NULL)
        config_fail(reading->parser, -ENOMEM, reading->file, reading->line, "no memory");
    return tenants != NULL && shares != NULL;
}

/* A share group is an account as a tenant's, which no process belongs to. */
static void tenant_enter(struct reading *reading, const char *name, bool group)
{
    struct config *config = reading->parser->config;

    if (!config_name_valid(name)) {
        reading_fail(reading,
            "'%.80s' is no name for a %s: 1 to %d letters, digits and ._-@:", name,
            group ? "share group" : "tenant", LIMIT_NAME_BYTES);
        return;
    }
    for (uint32_t i = 0; i < config->tenant_count; i++) {
        if (strcmp(config->tenants[i].name, name) != 0)
            continue;
        if (config->shares[i].group != group)
            reading_fail(
                reading, "%s is the name of a %s already", name, group ? "tenant" : "share group");
        reading->tenant = i;
        return;
    }
    if (!tenants_grow(reading))
        return;
    reading->tenant = (uint32_t) config->tenant_count++;
    config_tenant_init(&config->tenants[reading->tenant], name);
    config->shares[reading->tenant] = (struct config_share){.group = group};
}

static void device_enter(struct reading *reading, const char *uuid)
{
    const struct config *config = reading->parser->config;
    struct uuid wanted;

    if (uuid_parse(uuid, &wanted) < 0) {
        reading_fail(reading, "'%.80s' is no UUID of a device (gmbctl status shows them)", uuid);
        return;
    }
    reading->all_devices = false;
    for (uint32_t i = 0; i < config->device_count; i++) {
        if (uuid_equal(&config->devices[i].uuid, &wanted)) {
            reading->device = i;
            return;
        }
    }
    reading_fail(reading, "there is no device %.80s here", uuid);
}

static void section_enter(struct reading *reading, char *header)
{
    char *words[SECTION_WORDS + 1], *save = NULL;
    size_t count = 0;

    for (char *word = strtok_r(header, " \t", &save); word != NULL && count <= SECTION_WORDS;
         word = strtok_r(NULL, " \t", &save))
        words[count++] = word;
    reading->all_devices = true;
    reading->device = 0;
    reading->section = SECTION_NONE;
    if (count == 1 && strcmp(words[0], "Broker") == 0) {
        reading->section = SECTION_BROKER;
    } else if (count == 2 && strcmp(words[0], "Device") == 0) {
        reading->section = SECTION_DEVICE;
        if (strcmp(words[1], "*") != 0)
            device_enter(reading, words[1]);
    } else if ((count == 2 || (count == 4 && strcmp(words[2], "Device") == 0)) &&
               (strcmp(words[0], "Tenant") == 0 || strcmp(words[0], "ShareGroup") == 0)) {
        reading->section = words[0][0] == 'T' ? SECTION_TENANT : SECTION_GROUP;
        tenant_enter(reading, words[1], reading->section == SECTION_GROUP);
        if (count == 4)
            device_enter(reading, words[3]);
    } else {
        reading_fail(reading, "unknown section: it is [Broker], [Device UUID], [Device *], "
                              "[Tenant NAME], [ShareGroup NAME], or one of the last two with "
                              "Device UUID behind the name");
    }
}

/* ------------------------------------------------------------------ keys */

static void memory_assign(
    struct reading *reading, enum config_key key, const struct config_value *value)
{
    struct config_parser *parser = reading->parser;
    struct config_setting *grown;

    uint16_t *seen = &parser->seen[reading->tenant][reading->all_devices ? 0 : reading->device + 1];

    for (size_t i = 0; (*seen >> key & 1) != 0 && i < parser->setting_count; i++) {
        const struct config_setting *other = &parser->settings[i];

        if (other->tenant == reading->tenant && other->key == key &&
            other->all_devices == reading->all_devices && other->device == reading->device) {
            reading_fail(reading, "%s= stands already at %.200s:%u", config_key_name(key),
                other->file, other->line);
            return;
        }
    }
    if (parser->setting_count == parser->setting_room) {
        parser->setting_room = parser->setting_room * 2 + 16;
        grown = reallocarray(parser->settings, parser->setting_room, sizeof(*grown));
        if (grown == NULL) {
            config_fail(parser, -ENOMEM, reading->file, reading->line, "no memory");
            return;
        }
        parser->settings = grown;
    }
    *seen |= (uint16_t) (1u << key);
    parser->settings[parser->setting_count++] = (struct config_setting){
        .tenant = reading->tenant,
        .all_devices = reading->all_devices,
        .device = reading->device,
        .key = key,
        .value = *value,
        .file = reading->file,
        .line = reading->line,
    };
}

static void member_assign(struct reading *reading, const char *group)
{
    struct config_share *share = &reading->parser->config->shares[reading->tenant];

    if (share->member[0] != '\0') {
        reading_fail(reading, "ShareGroup= stands already at %.200s:%u", share->file, share->line);
    } else if (!config_name_valid(group)) {
        reading_fail(
            reading, "ShareGroup=%.64s is refused: it takes the name of a [ShareGroup]", group);
    } else {
        (void) snprintf(share->member, sizeof(share->member), "%s", group);
        share->file = reading->file;
        share->line = reading->line;
    }
}

/* What only processes have, and whoever asks for them. */
static bool key_of_processes(enum config_key key)
{
    return key == CONFIG_KEY_CLIENTS_MAX || key == CONFIG_KEY_QUANTIZED_TIER ||
           key == CONFIG_KEY_DEGRADE_LOW || key == CONFIG_KEY_DEGRADE_MEDIUM ||
           key == CONFIG_KEY_DEGRADE_CRITICAL;
}

static void tenant_assign(struct reading *reading, const char *name, const char *text)
{
    char reason[CONFIG_REASON_BYTES];
    struct config_value value;
    enum config_key key;
    int r;

    if (reading->all_devices && reading->section == SECTION_TENANT) {
        if (strcmp(name, "ShareGroup") == 0) {
            member_assign(reading, text);
            return;
        }
        r = config_rule_assign(reading->parser, reading->tenant, name, text, reason);
        if (r == 0)
            return;
        if (r != -ENOENT) {
            config_fail(reading->parser, r, reading->file, reading->line, "%s", reason);
            return;
        }
    }
    if (config_key_parse(name, &key) < 0 ||
        (reading->section == SECTION_GROUP && key_of_processes(key))) {
        reading_fail(reading, "unknown key %.64s= in [%s]", name,
            reading->section == SECTION_GROUP ? "ShareGroup" : "Tenant");
    } else if (!reading->all_devices && !config_key_is_memory(key)) {
        reading_fail(reading, "%s= doesn't differ between devices: it belongs into [%s %s]", name,
            reading->section == SECTION_GROUP ? "ShareGroup" : "Tenant",
            reading->parser->config->tenants[reading->tenant].name);
    } else if (config_value_parse(key, text, &value, reason) < 0) {
        reading_fail(reading, "%s", reason);
    } else {
        memory_assign(reading, key, &value);
    }
}

/* The size of a device's Reserve=. */
static bool reserve_parse(struct reading *reading, const char *text, uint64_t *ret)
{
    char reason[CONFIG_REASON_BYTES];
    struct config_value value;

    if (config_value_parse(CONFIG_KEY_MEMORY_MIN, text, &value, reason) < 0 || value.percent) {
        reading_fail(reading, "Reserve=%.64s is refused: it takes a size as 512M or 2G", text);
        return false;
    }
    *ret = value.number;
    return true;
}

static bool backend_parse(struct reading *reading, const char *text, bool *ret_ipc)
{
    if (strcmp(text, "auto") != 0 && strcmp(text, "ipc") != 0) {
        reading_fail(reading, "Backend=%.64s is refused: it is auto or ipc", text);
        return false;
    }
    *ret_ipc = strcmp(text, "ipc") == 0;
    return true;
}

static void device_assign(struct reading *reading, const char *name, const char *text)
{
    struct config_parser *parser = reading->parser;
    struct config_device *device = &parser->config->devices[reading->device];
    bool all = reading->all_devices, reserve = strcmp(name, "Reserve") == 0, done;
    bool *seen;

    if (!reserve && strcmp(name, "Backend") != 0) {
        reading_fail(reading, "unknown key %.64s= in [Device]", name);
        return;
    }
    if (reserve)
        seen = all ? &parser->reserve_any_set : &parser->reserve_set[reading->device];
    else
        seen = all ? &parser->ipc_any_set : &parser->ipc_set[reading->device];
    if (*seen) {
        reading_fail(reading, "%s= of this device stands already further up", name);
        return;
    }
    done = reserve
               ? reserve_parse(reading, text, all ? &parser->reserve_any : &device->reserve_bytes)
               : backend_parse(reading, text, all ? &parser->ipc_any : &device->ipc);
    *seen = done;
}

static int on_key(void *user, const char *section, const char *name, const char *value)
{
    struct reading *reading = user;
    char reason[CONFIG_REASON_BYTES];

    (void) section;
    if (reading->parser->result < 0)
        return 0;
    switch (reading->section) {
    case SECTION_NONE:
        reading_fail(reading, "%.64s= stands in no section", name);
        break;
    case SECTION_BROKER:
        if (config_broker_assign(reading->parser, name, value, reason) < 0)
            reading_fail(reading, "%s", reason);
        else if (strncmp(name, "Pressure", 8) == 0 || strncmp(name, "Stall", 5) == 0)
            reading->parser->levels = (struct config_place){reading->file, reading->line};
        break;
    case SECTION_DEVICE:
        device_assign(reading, name, value);
        break;
    case SECTION_TENANT:
    case SECTION_GROUP:
        tenant_assign(reading, name, value);
        break;
    case SECTION_MAX:
        break;
    }
    return reading->parser->result == 0;
}

/* ------------------------------------------------------------------ lines */

/* Gives inih the next line, without its indentation; a header becomes a stand-in. */
static char *on_read(char *buffer, int room, void *stream)
{
    struct reading *reading = stream;
    const char *start = reading->text, *newline;
    size_t length;

    if (start >= reading->end || reading->parser->result < 0)
        return NULL;
    newline = memchr(start, '\n', (size_t) (reading->end - start));
    reading->text = newline != NULL ? newline + 1 : reading->end;
    reading->line++;
    length = (size_t) ((newline != NULL ? newline : reading->end) - start);
    if (reading->line == 1 && length >= 3 && memcmp(start, "\xef\xbb\xbf", 3) == 0) {
        start += 3;
        length -= 3;
    }
    if (memchr(start, '\0', length) != NULL) {
        reading_fail(reading, "the line holds a NUL character");
        return NULL;
    }
    while (length > 0 && isspace((unsigned char) start[0])) {
        start++;
        length--;
    }
    while (length > 0 && isspace((unsigned char) start[length - 1]))
        length--;
    if (room < 2 || length > (size_t) room - 2) {
        reading_fail(reading, "the line is longer than %d characters", room - 2);
        return NULL;
    }
    memcpy(buffer, start, length);
    buffer[length] = '\0';
    if (buffer[0] == '[') {
        char *end = strchr(buffer, ']');

        if (end == NULL || strchr(";#", end[1 + strspn(end + 1, " \t")]) == NULL) {
            reading_fail(reading, "the section header has no ] at its end");
            return NULL;
        }
        *end = '\0';
        section_enter(reading, buffer + 1);
        length = (size_t) snprintf(buffer, (size_t) room, "[s]");
    }
    buffer[length] = '\n';
    buffer[length + 1] = '\0';
    return buffer;
}

void config_parse_text(
    struct config_parser *parser, const char *name, const char *text, size_t size)
{
    struct reading reading = {
        .parser = parser,
        .file = name,
        .text = text,
        .end = text + size,
        .all_devices = true,
    };
    int r = ini_parse_stream(on_read, &reading, on_key, &reading);

    /* What inih refuses by itself: a line that is neither header, comment nor key and value. */
    if (r != 0 && parser->result == 0)
        config_fail(
            parser, -EINVAL, name, r > 0 ? (unsigned) r : reading.line, "the line is no key=value");
}
