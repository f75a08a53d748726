/* The attributes of checkpoint.h5: what the run was and what each tensor is,
 * from the state.
 *
 * Many tensors have the same ones, so each set is put into messages once, by a
 * file of its own that is nothing but messages, and copied into every header
 * that it belongs to; its texts are in the heap once. */
#include "checkpoint/files/ckpt_view_about.h"
#include "src/base/jsontext.h"

#include <assert.h>
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#define FORMAT_VERSION 2
#define NAME_BYTES_MAX 256 /* of an attribute */
#define LIST_MAX 256       /* texts of a list */

/* The attributes of one object, as messages for headers. */
struct attributes {
    const char *of; /* whose */
    struct ckpt_h5 messages;
};

/* Attributes of several objects, by whose they are. */
struct sets {
    struct attributes *list;
    size_t count;
};

struct ckpt_view_about {
    struct sets root; /* one */
    struct sets config, kinds, tensors;
    json_t *fixed; /* its keys cut at the first dot */
};

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
static bool put_attribute(struct ckpt_h5 *file, struct ckpt_h5 *messages,
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
        if (texts == NULL)
            return false;
        for (size_t i = 0; i < count; i++)
            texts[i] = put_text(file, list ? json_array_get(value, i) : value);
        ckpt_h5_attribute_texts(messages, name, texts, list ? (int)count : -1);
        free(texts);
    }
    return !messages->failed;
}

static bool put_object(struct ckpt_h5 *file, struct attributes *set,
                       json_t *object)
{
    const char *name;
    json_t *value;
    bool good = true;
    json_object_foreach(object, name, value)
    {
        if (good && is_shown(name, value))
            good = put_attribute(file, &set->messages, name, value);
    }
    return good;
}

static int set_order(const void *a, const void *b)
{
    return strcmp(((const struct attributes *)a)->of,
                  ((const struct attributes *)b)->of);
}

/* A set for every member of the object, in the order of their names. */
static bool add_sets(struct ckpt_h5 *file, struct sets *sets, json_t *object)
{
    const char *of;
    json_t *member;
    sets->list = calloc(json_object_size(object) + 1, sizeof *sets->list);
    if (sets->list == NULL)
        return false;
    bool good = true;
    json_object_foreach(object, of, member)
    {
        struct attributes *set = &sets->list[sets->count++];
        set->of = of;
        good = good && put_object(file, set, member);
    }
    qsort(sets->list, sets->count, sizeof *sets->list, set_order);
    return good;
}

static void free_sets(struct sets *sets)
{
    for (size_t i = 0; i < sets->count; i++)
        free(sets->list[i].messages.data);
    free(sets->list);
}

static const struct attributes *find_set(const struct sets *sets,
                                         const char *of)
{
    struct attributes key = { .of = of };
    if (sets->count == 0)
        return NULL;
    return bsearch(&key, sets->list, sets->count, sizeof *sets->list,
                   set_order);
}

static void put_set(struct ckpt_h5 *file, const struct attributes *set)
{
    if (set != NULL)
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
static bool add_root(struct ckpt_h5 *file, struct sets *root,
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
    json_t *only = own != NULL ? json_pack("{s:O}", "", own) : NULL;
    bool good = only != NULL && add_sets(file, root, only);
    if (good)
        root->list[0].of = "";
    json_decref(only);
    json_decref(own);
    return good;
}

enum err ckpt_view_about_create(struct ckpt_h5 *file,
                                const struct ckpt_manifest *manifest,
                                struct ckpt_view_about **out)
{
    const json_t *said = json_object_get(manifest->state, "about");
    struct ckpt_view_about *about = calloc(1, sizeof *about);
    *out = about;
    bool good = about != NULL;
    if (good) {
        about->fixed = cut_keys(json_object_get(manifest->state, "fixed"));
        good =
            about->fixed != NULL && add_root(file, &about->root, manifest) &&
            add_sets(file, &about->config, about->fixed) &&
            add_sets(file, &about->kinds, json_object_get(said, "kinds")) &&
            add_sets(file, &about->tensors, json_object_get(said, "tensors"));
    }
    if (good)
        return ERR_OK;
    ckpt_view_about_destroy(about);
    *out = NULL;
    return err_set(ERR_MEMORY, "%s: out of memory", CKPT_VIEW_FILE);
}

void ckpt_view_about_destroy(struct ckpt_view_about *about)
{
    if (about == NULL)
        return;
    free_sets(&about->tensors);
    free_sets(&about->kinds);
    free_sets(&about->config);
    free_sets(&about->root);
    json_decref(about->fixed);
    free(about);
}

void ckpt_view_about_root(const struct ckpt_view_about *about,
                          struct ckpt_h5 *file)
{
    put_set(file, &about->root.list[0]);
}

bool ckpt_view_about_has_config(const struct ckpt_view_about *about)
{
    return about->config.count > 0;
}

void ckpt_view_about_config(const struct ckpt_view_about *about,
                            struct ckpt_h5 *file)
{
    put_set(file, find_set(&about->config, ""));
}

/* The set of "", the group itself, is the first if there is one. */
static const struct attributes *group_at(const struct ckpt_view_about *about,
                                         int i)
{
    assert(i >= 0);
    size_t first = find_set(&about->config, "") != NULL;
    size_t at = first + (size_t)i;
    return at < about->config.count ? &about->config.list[at] : NULL;
}

const char *ckpt_view_about_group(const struct ckpt_view_about *about, int i)
{
    const struct attributes *group = group_at(about, i);
    return group != NULL ? group->of : NULL;
}

void ckpt_view_about_group_put(const struct ckpt_view_about *about,
                               struct ckpt_h5 *file, int i)
{
    put_set(file, group_at(about, i));
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
    put_set(file, find_set(&about->kinds, kind));
    const struct attributes *set = find_set(&about->tensors, pattern);
    put_set(file, set);
    if (set != NULL && layer >= 0)
        ckpt_h5_attribute_integer(file, "layer", layer);
}
