/* Functions of lists and dictionaries.
 *
 * Filters do not change what they get: there are no copies of lists when they
 * are assigned or passed on, so two variables can mean the same items. Those
 * that change something take a list of their own by list_copy() first. A text
 * counts as a list of its characters, a dictionary as one of its keys, as in
 * Python. */
#include <assert.h>
#include <string.h>

#include "src/text/chat/chat_eval.h"

enum err chat_eval_iterate(struct chat_scope *scope, int line,
                           const struct chat_value *of, struct chat_value *out)
{
    assert(of != NULL && out != NULL);
    struct chat_value list;
    size_t count = 0;
    if (of->kind == CHAT_VALUE_LIST) {
        *out = *of;
        return ERR_OK;
    }
    if (of->kind == CHAT_VALUE_STRING)
        for (size_t i = 0; i < of->count; i++)
            count += (of->as.text[i] & 0xc0) != 0x80;
    else if (of->kind == CHAT_VALUE_RECORD && !of->may_change)
        for (struct chat_field *f = of->as.record; f != NULL; f = f->next)
            count++;
    else if (of->kind != CHAT_VALUE_UNDEFINED)
        return err_set(ERR_DATA, "line %d: the items of %s are not known here",
                       line, chat_value_name(of));
    TRY(chat_value_list(scope->memory, count, &list));
    count = 0;
    if (of->kind == CHAT_VALUE_RECORD)
        for (struct chat_field *f = of->as.record; f != NULL; f = f->next)
            list.as.list[count++] = chat_value_of_key(f);
    else if (of->kind == CHAT_VALUE_STRING)
        for (size_t i = 0, end = 0; i < of->count; i = end) {
            for (end = i + 1;
                 end < of->count && (of->as.text[end] & 0xc0) == 0x80;)
                end++;
            if (count < list.count)
                list.as.list[count++] =
                    chat_value_string(of->as.text + i, end - i);
        }
    *out = list;
    return ERR_OK;
}

static enum err list_of(struct chat_eval_arguments *arguments,
                        struct chat_value *out)
{
    return chat_eval_iterate(arguments->scope, arguments->node->line,
                             &arguments->value[0], out);
}

/* A list of one's own, to be changed; of none an empty one, for filters that
 * look at nothing then. */
static enum err list_copy(struct chat_eval_arguments *arguments,
                          struct chat_value *out)
{
    struct chat_value of = { 0 };
    if (arguments->value[0].kind != CHAT_VALUE_NONE)
        TRY(list_of(arguments, &of));
    TRY(chat_value_list(arguments->scope->memory, of.count, out));
    if (of.count > 0)
        memcpy(out->as.list, of.as.list, of.count * sizeof of);
    return ERR_OK;
}

enum err chat_eval_list(struct chat_eval_arguments *arguments,
                        struct chat_value *out)
{
    TRY(list_of(arguments, out));
    return list_copy(arguments, out);
}

enum err chat_eval_length(struct chat_eval_arguments *arguments,
                          struct chat_value *out)
{
    struct chat_value list;
    TRY(list_of(arguments, &list));
    *out = chat_value_integer((int64_t)list.count);
    return ERR_OK;
}

enum err chat_eval_end(struct chat_eval_arguments *arguments,
                       struct chat_value *out)
{
    struct chat_value list;
    TRY(list_of(arguments, &list));
    size_t at = arguments->ways == CHAT_EVAL_BACK ? list.count - 1 : 0;
    *out = list.count > 0 ? list.as.list[at] : (struct chat_value){ 0 };
    return ERR_OK;
}

/* value[1] of the object, as a.b.c or a[1] have it. */
static enum err chat_eval_path(const struct chat_value *of,
                               const struct chat_value *path,
                               struct chat_value *out)
{
    const char *at = path->as.text, *end = at + path->count;
    struct chat_value value = *of;
    while (at <= end && value.kind != CHAT_VALUE_UNDEFINED) {
        const char *dot = memchr(at, '.', (size_t)(end - at));
        dot = dot != NULL ? dot : end;
        const struct chat_field *field =
            chat_value_field(&value, at, (size_t)(dot - at));
        value = field != NULL ? field->value : (struct chat_value){ 0 };
        at = dot + 1;
    }
    *out = value;
    return ERR_OK;
}

/* The attribute that value[at] names of each item, or the item. */
static enum err list_attributes(struct chat_eval_arguments *arguments,
                                size_t at, struct chat_value *list)
{
    const struct chat_value *path = &arguments->value[at];
    if (path->kind == CHAT_VALUE_UNDEFINED || path->kind == CHAT_VALUE_NONE)
        return ERR_OK;
    if (path->kind != CHAT_VALUE_STRING)
        return err_set(ERR_DATA, "line %d: %s where a name should be",
                       arguments->node->line, chat_value_name(path));
    for (size_t i = 0; i < list->count; i++) {
        TRY(chat_value_work(arguments->scope->memory, path->count));
        TRY(chat_eval_path(&list->as.list[i], path, &list->as.list[i]));
    }
    return ERR_OK;
}

enum err chat_eval_join(struct chat_eval_arguments *arguments,
                        struct chat_value *out)
{
    assert(arguments->count >= 1);
    struct chat_memory *memory = arguments->scope->memory;
    struct chat_value list, by = arguments->value[1];
    size_t bytes = 0;
    void *room = NULL;
    if (by.kind == CHAT_VALUE_UNDEFINED)
        by = chat_value_string("", 0);
    TRY(chat_value_text(memory, &by, &by));
    TRY(list_copy(arguments, &list));
    TRY(list_attributes(arguments, 2, &list));
    for (size_t i = 0; i < list.count; i++) {
        TRY(chat_value_text(memory, &list.as.list[i], &list.as.list[i]));
        bytes += list.as.list[i].count + (i > 0 ? by.count : 0);
        if (bytes > CHAT_VALUE_BYTES_MAX)
            return err_set(ERR_DATA, "line %d: 'join' makes too much text",
                           arguments->node->line);
    }
    TRY(chat_value_room(memory, bytes, &room));
    char *to = room;
    for (size_t i = 0; i < list.count; i++) {
        if (i > 0)
            to = mempcpy(to, by.as.text, by.count);
        to = mempcpy(to, list.as.list[i].as.text, list.as.list[i].count);
    }
    *out = chat_value_string(room, bytes);
    return ERR_OK;
}

/* Keys, values, or both of a dictionary. */
enum err chat_eval_fields(struct chat_eval_arguments *arguments,
                          struct chat_value *out)
{
    struct chat_value list, pair = { 0 };
    TRY(list_copy(arguments, &list));
    const struct chat_field *field =
        arguments->value[0].kind == CHAT_VALUE_RECORD
            ? arguments->value[0].as.record
            : NULL;
    if (field == NULL && list.count > 0)
        return err_set(ERR_DATA, "line %d: the fields of %s",
                       arguments->node->line,
                       chat_value_name(&arguments->value[0]));
    for (size_t i = 0; i < list.count; i++, field = field->next) {
        if (arguments->ways == CHAT_EVAL_KEYS)
            break;
        TRY(chat_value_list(arguments->scope->memory, 2, &pair));
        pair.tuple = true;
        pair.as.list[0] = list.as.list[i];
        pair.as.list[1] = field->value;
        list.as.list[i] =
            arguments->ways == CHAT_EVAL_VALUES ? field->value : pair;
    }
    *out = list;
    return ERR_OK;
}

enum err chat_eval_reverse(struct chat_eval_arguments *arguments,
                           struct chat_value *out)
{
    struct chat_value list;
    TRY(list_copy(arguments, &list));
    for (size_t i = 0; i < list.count / 2; i++) {
        struct chat_value other = list.as.list[i];
        list.as.list[i] = list.as.list[list.count - 1 - i];
        list.as.list[list.count - 1 - i] = other;
    }
    *out = list;
    if (arguments->value[0].kind != CHAT_VALUE_STRING)
        return ERR_OK;
    return chat_eval_apply(arguments->scope, arguments->node, chat_eval_join, 0,
                           list, (struct chat_value){ 0 }, out);
}

/* Put items in the order of keys: texts without regard to case, as Jinja does
 * unless told otherwise, and items of equal keys in the order that they had, as
 * Python's sort() promises. Both ask for a merge sort, here from below: rows of
 * 1, 2, 4, ... are merged two by two, from one list into the other. qsort()
 * keeps no order of equals, and could not say that two values have none. */
static enum err list_sort(struct chat_eval_arguments *arguments, bool back,
                          struct chat_value *keys, struct chat_value *list)
{
    struct chat_memory *memory = arguments->scope->memory;
    struct chat_value from[2], to[2];
    for (size_t i = 0; i < keys->count; i++) {
        struct chat_value *key = &keys->as.list[i];
        if (key->kind == CHAT_VALUE_STRING)
            TRY(chat_eval_apply(arguments->scope, arguments->node,
                                chat_eval_case, 0, *key,
                                (struct chat_value){ 0 }, key));
    }
    from[0] = *keys;
    from[1] = *list;
    for (int k = 0; k < 2; k++)
        TRY(chat_value_list(memory, list->count, &to[k]));
    for (size_t run = 1; run < list->count; run *= 2) {
        for (size_t at = 0; at < list->count; at += 2 * run) {
            size_t half = at + run < list->count ? at + run : list->count;
            size_t end = half + run < list->count ? half + run : list->count;
            for (size_t a = at, b = half, t = at; t < end; t++) {
                int order = 0;
                TRY(chat_value_work(memory, 0));
                if (a < half && b < end)
                    TRY(chat_eval_order(arguments->node->line,
                                        &from[0].as.list[a],
                                        &from[0].as.list[b], &order));
                bool left =
                    b == end || (a < half && (back ? order >= 0 : order <= 0));
                size_t next = left ? a++ : b++;
                for (int k = 0; k < 2; k++)
                    to[k].as.list[t] = from[k].as.list[next];
            }
        }
        for (int k = 0; k < 2; k++) {
            struct chat_value other = from[k];
            from[k] = to[k];
            to[k] = other;
        }
    }
    *list = from[1];
    return ERR_OK;
}

enum err chat_eval_sort(struct chat_eval_arguments *arguments,
                        struct chat_value *out)
{
    struct chat_value keys;
    TRY(list_copy(arguments, out));
    TRY(list_copy(arguments, &keys));
    if (chat_value_true(&arguments->value[2]))
        return err_set(ERR_DATA, "line %d: 'sort' by case is not known here",
                       arguments->node->line);
    TRY(list_attributes(arguments, 3, &keys));
    return list_sort(arguments, chat_value_true(&arguments->value[1]), &keys,
                     out);
}

enum err chat_eval_dictsort(struct chat_eval_arguments *arguments,
                            struct chat_value *out)
{
    assert(arguments->value[0].kind == CHAT_VALUE_RECORD);
    struct chat_value keys;
    TRY(chat_eval_fields(arguments, out));
    TRY(list_copy(arguments, &keys));
    return list_sort(arguments, false, &keys, out);
}

enum err chat_eval_unique(struct chat_eval_arguments *arguments,
                          struct chat_value *out)
{
    struct chat_value list;
    size_t kept = 0;
    TRY(list_copy(arguments, &list));
    for (size_t i = 0; i < list.count; i++) {
        bool known = false;
        for (size_t k = 0; k < kept && !known; k++)
            TRY(chat_value_equal(arguments->scope->memory, &list.as.list[i],
                                 &list.as.list[k], &known));
        if (!known)
            list.as.list[kept++] = list.as.list[i];
    }
    list.count = kept;
    *out = list;
    return ERR_OK;
}

enum err chat_eval_extreme(struct chat_eval_arguments *arguments,
                           struct chat_value *out)
{
    struct chat_value list;
    TRY(list_of(arguments, &list));
    bool least = arguments->ways == CHAT_EVAL_LEAST;
    *out = (struct chat_value){ 0 };
    for (size_t i = 0; i < list.count; i++) {
        int order = least ? -1 : 1;
        if (i > 0)
            TRY(chat_eval_order(arguments->node->line, &list.as.list[i], out,
                                &order));
        if (least ? order < 0 : order > 0)
            *out = list.as.list[i];
    }
    return ERR_OK;
}

enum err chat_eval_get(struct chat_eval_arguments *arguments,
                       struct chat_value *out)
{
    assert(arguments->value[0].kind == CHAT_VALUE_RECORD);
    const struct chat_value *value = arguments->value;
    struct chat_value key;
    TRY(chat_value_key(arguments->scope->memory, &value[1], &key));
    const struct chat_field *field =
        chat_value_field(&value[0], key.as.text, key.count);
    *out = field != NULL ? field->value
           : arguments->count > 2
               ? value[2]
               : (struct chat_value){ .kind = CHAT_VALUE_NONE };
    return ERR_OK;
}

/* range(end), range(from, end), range(from, end, step) */
enum err chat_eval_range(struct chat_eval_arguments *arguments,
                         struct chat_value *out)
{
    assert(arguments->count >= 1);
    int64_t bound[3] = { 0, 0, 1 }, count = 0;
    for (size_t a = 0; a < arguments->count; a++) {
        const struct chat_value *value = &arguments->value[a];
        if (value->kind != CHAT_VALUE_INTEGER ||
            value->as.integer > INT32_MAX || value->as.integer < -INT32_MAX)
            return err_set(ERR_DATA, "line %d: 'range' of %s",
                           arguments->node->line, chat_value_name(value));
        bound[arguments->count == 1 ? 1 : a] = value->as.integer;
    }
    if (bound[2] == 0)
        return err_set(ERR_DATA, "line %d: 'range' with a step of 0",
                       arguments->node->line);
    int64_t size = bound[2] > 0 ? bound[1] - bound[0] : bound[0] - bound[1];
    int64_t pace = bound[2] > 0 ? bound[2] : -bound[2];
    count = size > 0 ? (size + pace - 1) / pace : 0;
    TRY(chat_value_list(arguments->scope->memory, (size_t)count, out));
    for (int64_t i = 0; i < count; i++)
        out->as.list[i] = chat_value_integer(bound[0] + i * bound[2]);
    return ERR_OK;
}

/* Items for which a test holds, of the item or of an attribute of it. With a
 * test's name it is that test which has to hold, else the value itself. */
enum err chat_eval_select(struct chat_eval_arguments *arguments,
                          struct chat_value *out)
{
    const bool attribute = (arguments->ways & CHAT_EVAL_ATTRIBUTE) != 0;
    const bool wanted = (arguments->ways & CHAT_EVAL_REJECT) == 0;
    assert(arguments->count >= 1u + attribute);
    const struct chat_value *given = &arguments->value[1 + attribute];
    struct chat_value list;
    size_t kept = 0;
    TRY(list_copy(arguments, &list));
    if ((attribute && arguments->value[1].kind != CHAT_VALUE_STRING) ||
        (given->kind != CHAT_VALUE_STRING &&
         given->kind != CHAT_VALUE_UNDEFINED))
        return err_set(ERR_DATA, "line %d: a test or attribute without a name",
                       arguments->node->line);
    for (size_t i = 0; i < list.count; i++) {
        struct chat_eval_arguments test = { .scope = arguments->scope,
                                            .node = arguments->node,
                                            .value = { list.as.list[i] },
                                            .count = 1 };
        TRY(chat_value_work(arguments->scope->memory, 0));
        if (attribute)
            TRY(chat_eval_path(&list.as.list[i], &arguments->value[1],
                               &test.value[0]));
        bool holds = chat_value_true(&test.value[0]);
        if (arguments->count > 2u + attribute) {
            test.value[1] = arguments->value[2 + attribute];
            test.count = 2;
        }
        if (given->kind == CHAT_VALUE_STRING)
            TRY(chat_eval_holds(&test, given->as.text, given->count, &holds));
        if (holds == wanted)
            list.as.list[kept++] = list.as.list[i];
    }
    list.count = kept;
    *out = list;
    return ERR_OK;
}

/* map(attribute='x') or map('filter', argument). Jinja's gives a generator, which
 * can be gone through once; here it is a list, as of all filters. */
enum err chat_eval_map(struct chat_eval_arguments *arguments,
                       struct chat_value *out)
{
    assert(arguments->count >= 2);
    const struct chat_value *name = &arguments->value[1];
    struct chat_value list;
    TRY(list_copy(arguments, &list));
    *out = list;
    if (name->kind != CHAT_VALUE_STRING)
        return list_attributes(arguments, 3, &list);
    for (size_t i = 0; i < list.count; i++) {
        struct chat_eval_arguments each = {
            .scope = arguments->scope,
            .node = arguments->node,
            .value = { list.as.list[i], arguments->value[2] },
            .count = arguments->count > 2 ? 2 : 1
        };
        TRY(chat_eval_filter_named(&each, name->as.text, name->count,
                                   &list.as.list[i]));
    }
    return ERR_OK;
}
