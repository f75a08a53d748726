/* The attributes of checkpoint.h5: what the run was and what each tensor is,
 * from the state.
 *
 * Many tensors have the same ones, so each set is put into messages once, by a
 * file of its own that is nothing but messages, and copied into every header
 * that it belongs to; its texts are in the heap once. */
#include "checkpoint/files/ckpt_view_about.h"
#include "src/base/jsontext.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION 2
#define NAME_BYTES_MAX 256 /* of an attribute */
#define LIST_MAX 256       /* texts of a list */

/* --- sets --- */

static bool is_shown(const char *name, const json_t *value)
{
    if (strlen(name) >= NAME_BYTES_MAX || name[0] == '\0')
        return false;
    if (!json_is_array(value))
        return json_is_string(value) || json_is_number(value) ||
               json_is_boolean(value);
    bool texts = json_array_size(value) <= LIST_MAX;
    for (size_t i = 0; texts && i < json_array_size(value); i++)
        texts = json_is_string(json_array_get(value, i));
    return texts;
}

static struct ckpt_h5_object put_text(struct ckpt_h5 *file,
                                      const json_t *string)
{
    if (json_string_length(string) == 0)
        return (struct ckpt_h5_object){ 0 };
    struct ckpt_h5_object object = ckpt_h5_object_begin(file);
    ckpt_h5_put(file, json_string_value(string), json_string_length(string));
    ckpt_h5_object_end(file, &object);
    return object;
}

/* The texts go into the heap, the attribute into the messages. */
static void put_attribute(struct ckpt_h5 *file, struct ckpt_h5 *messages,
                          const char *name, const json_t *value)
{
    bool list = json_is_array(value);
    size_t count = list ? json_array_size(value) : 1;
    if (json_is_integer(value)) {
        ckpt_h5_attribute_integer(messages, name, json_integer_value(value));
    } else if (json_is_real(value)) {
        ckpt_h5_attribute_real(messages, name, json_real_value(value));
    } else if (json_is_boolean(value)) {
        ckpt_h5_attribute_boolean(messages, name, json_is_true(value));
    } else {
        struct ckpt_h5_object *texts = calloc(count + 1, sizeof *texts);
        if (texts == NULL) {
            messages->failed = true;
            return;
        }
        for (size_t i = 0; i < count; i++)
            texts[i] = put_text(file, list ? json_array_get(value, i) : value);
        ckpt_h5_attribute_texts(messages, name, texts, list ? (int)count : -1);
        free(texts);
    }
}

static void put_object(struct ckpt_h5 *file, struct ckpt_view_attributes *set,
                       json_t *object)
{
    const char *name;
    json_t *value;
    json_object_foreach(object, name, value)
    {
        if (is_shown(name, value))
            put_attribute(file, &set->messages, name, value);
    }
}

static int set_order(const void *a, const void *b)
{
    return strcmp(((const struct ckpt_view_attributes *)a)->of,
                  ((const struct ckpt_view_attributes *)b)->of);
}

/* A set for every member of the object, in the order of their names. */
static void add_sets(struct ckpt_h5 *file, struct ckpt_view_sets *sets,
                     json_t *object)
{
    const char *of;
    json_t *member;
    sets->list = calloc(json_object_size(object) + 1, sizeof *sets->list);
    if (sets->list == NULL) {
        file->failed = true;
        return;
    }
    json_object_foreach(object, of, member)
    {
        struct ckpt_view_attributes *set = &sets->list[sets->count++];
        set->of = of;
        put_object(file, set, member);
    }
    qsort(sets->list, sets->count, sizeof *sets->list, set_order);
}

static void free_sets(struct ckpt_view_sets *sets)
{
    for (size_t i = 0; i < sets->count; i++)
        free(sets->list[i].messages.data);
    free(sets->list);
}

const struct ckpt_view_attributes *
ckpt_view_about_find(const struct ckpt_view_sets *sets, const char *of)
{
    struct ckpt_view_attributes key = { .of = of };
    if (sets->count == 0)
        return NULL;
    return bsearch(&key, sets->list, sets->count, sizeof *sets->list,
                   set_order);
}

void ckpt_view_about_put(struct ckpt_h5 *file,
                         const struct ckpt_view_attributes *set)
{
    if (set == NULL)
        return;
    file->failed |= set->messages.failed;
    ckpt_h5_put(file, set->messages.data, set->messages.bytes);
}

/* --- the whole --- */

/* {"a.b": x, "c": y} as {"a": {"b": x}, "": {"c": y}}; NULL: out of memory. */
static json_t *cut_keys(json_t *flat)
{
    const char *key;
    json_t *value;
    json_t *cut = json_object();
    json_object_foreach(flat, key, value)
    {
        char group[NAME_BYTES_MAX] = "";
        const char *dot = strchr(key, '.');
        size_t length = dot != NULL ? (size_t)(dot - key) : 0;
        if (length >= sizeof group || memchr(key, '/', length) != NULL)
            continue;
        memcpy(group, key, length);
        json_t *inner = json_incref(json_object_get(cut, group));
        if (inner == NULL)
            inner = json_object();
        jsontext_set(&inner, length > 0 ? dot + 1 : key, json_incref(value));
        jsontext_set(&cut, group, inner);
    }
    return cut;
}

/* What the checkpoint itself says comes first, and once. */
static void add_root(struct ckpt_h5 *file, struct ckpt_view_attributes *root,
                     const struct ckpt_manifest *manifest)
{
    json_t *own =
        json_pack("{s:i, s:I, s:i}", "format_version", FORMAT_VERSION, "step",
                  (json_int_t)manifest->step, "ranks", manifest->ranks);
    const char *key;
    json_t *value;
    json_object_foreach(manifest->state, key, value)
    {
        if (json_object_get(own, key) == NULL)
            jsontext_set(&own, key, json_incref(value));
    }
    file->failed |= own == NULL;
    put_object(file, root, own);
    json_decref(own);
}

void ckpt_view_about_create(struct ckpt_h5 *file,
                            const struct ckpt_manifest *manifest,
                            struct ckpt_view_about *out)
{
    const json_t *said = json_object_get(manifest->state, "about");
    *out = (struct ckpt_view_about){ .fixed = cut_keys(json_object_get(
                                         manifest->state, "fixed")) };
    file->failed |= out->fixed == NULL;
    add_root(file, &out->root, manifest);
    add_sets(file, &out->config, out->fixed);
    add_sets(file, &out->kinds, json_object_get(said, "kinds"));
    add_sets(file, &out->tensors, json_object_get(said, "tensors"));
}

void ckpt_view_about_destroy(struct ckpt_view_about *about)
{
    free_sets(&about->tensors);
    free_sets(&about->kinds);
    free_sets(&about->config);
    free(about->root.messages.data);
    json_decref(about->fixed);
}

/* name with a star for the first number between two dots; that number, or -1 */
static int64_t starred(const char *name, char out[CKPT_NAME_BYTES])
{
    const char *dot = strchr(name, '.');
    while (dot != NULL) {
        size_t digits = 0;
        while (digits < 18 && isdigit((unsigned char)dot[1 + digits]))
            digits++;
        const char *end = dot + 1 + digits;
        if (digits > 0 && *end == '.') {
            size_t before = (size_t)(dot + 1 - name);
            memcpy(out, name, before);
            out[before] = '*';
            memcpy(out + before + 1, end, strlen(end) + 1);
            return strtoll(dot + 1, NULL, 10);
        }
        dot = strchr(dot + 1, '.');
    }
    memcpy(out, name, strlen(name) + 1);
    return -1;
}

void ckpt_view_about_tensor(const struct ckpt_view_about *about,
                            struct ckpt_h5 *file, const char *name)
{
    char kind[CKPT_NAME_BYTES] = "", pattern[CKPT_NAME_BYTES];
    const char *slash = strrchr(name, '/');
    if (about->kinds.count == 0 && about->tensors.count == 0)
        return;
    if (slash != NULL)
        memcpy(kind, name, (size_t)(slash - name));
    int64_t layer = starred(slash != NULL ? slash + 1 : name, pattern);
    ckpt_view_about_put(file, ckpt_view_about_find(&about->kinds, kind));
    const struct ckpt_view_attributes *set =
        ckpt_view_about_find(&about->tensors, pattern);
    ckpt_view_about_put(file, set);
    if (set != NULL && layer >= 0)
        ckpt_h5_attribute_integer(file, "layer", layer);
}
