/* Functions, filters and methods of chat templates: a table each. */
#include <string.h>

#include "src/text/chat_eval.h"

#define CHAT_EVAL_ARGUMENTS 3

/* What a function gets: its values, in order. */
struct chat_eval_arguments {
    struct chat_scope *scope;
    const struct chat_node *node;
    struct chat_value value[CHAT_EVAL_ARGUMENTS]; /* the object first */
    size_t count;
};

struct chat_eval_function {
    const char *name;
    enum err (*run)(struct chat_eval_arguments *arguments,
                    struct chat_value *out);
    size_t least, most;      /* arguments, with the object */
    enum chat_value_kind of; /* the object; CHAT_VALUE_UNDEFINED: anything */
};

static enum err chat_eval_strip(struct chat_eval_arguments *arguments,
                                bool front, bool back, struct chat_value *out)
{
    const struct chat_value *text = &arguments->value[0];
    if (arguments->count > 1)
        return err_set(ERR_DATA,
                       "line %d: stripping of given characters is "
                       "not known here",
                       arguments->node->line);
    size_t first = front ? chat_lex_blank_front(text->as.text, text->count) : 0;
    size_t last =
        back ? chat_lex_blank_back(text->as.text + first, text->count - first)
             : 0;
    *out = chat_value_string(text->as.text + first, text->count - first - last);
    return chat_value_work(arguments->scope->memory, first + last);
}

static enum err chat_eval_trim(struct chat_eval_arguments *arguments,
                               struct chat_value *out)
{
    return chat_eval_strip(arguments, true, true, out);
}

static enum err chat_eval_lstrip(struct chat_eval_arguments *arguments,
                                 struct chat_value *out)
{
    return chat_eval_strip(arguments, true, false, out);
}

static enum err chat_eval_rstrip(struct chat_eval_arguments *arguments,
                                 struct chat_value *out)
{
    return chat_eval_strip(arguments, false, true, out);
}

static enum err chat_eval_case(struct chat_eval_arguments *arguments, char from,
                               int change, struct chat_value *out)
{
    const struct chat_value *text = &arguments->value[0];
    void *room = NULL;
    TRY(chat_value_room(arguments->scope->memory, text->count, &room));
    char *to = room;
    for (size_t i = 0; i < text->count; i++) {
        char c = text->as.text[i];
        if ((unsigned char)c >= 0x80)
            return err_set(ERR_DATA,
                           "line %d: 'upper' and 'lower' are known "
                           "for ASCII only here",
                           arguments->node->line);
        to[i] = c >= from && c <= from + 25 ? (char)(c + change) : c;
    }
    *out = chat_value_string(to, text->count);
    return ERR_OK;
}

static enum err chat_eval_upper(struct chat_eval_arguments *arguments,
                                struct chat_value *out)
{
    return chat_eval_case(arguments, 'a', 'A' - 'a', out);
}

static enum err chat_eval_lower(struct chat_eval_arguments *arguments,
                                struct chat_value *out)
{
    return chat_eval_case(arguments, 'A', 'a' - 'A', out);
}

/* The arguments behind the object are texts. */
static enum err chat_eval_texts(const struct chat_eval_arguments *arguments)
{
    for (size_t a = 1; a < arguments->count; a++)
        if (arguments->value[a].kind != CHAT_VALUE_STRING)
            return err_set(ERR_DATA, "line %d: %s where a text should be",
                           arguments->node->line,
                           chat_value_name(&arguments->value[a]));
    return ERR_OK;
}

static enum err chat_eval_starts(struct chat_eval_arguments *arguments,
                                 struct chat_value *out)
{
    const struct chat_value *text = &arguments->value[0];
    const struct chat_value *with = &arguments->value[1];
    TRY(chat_eval_texts(arguments));
    *out = chat_value_boolean(
        with->count <= text->count &&
        memcmp(text->as.text, with->as.text, with->count) == 0);
    return ERR_OK;
}

static enum err chat_eval_ends(struct chat_eval_arguments *arguments,
                               struct chat_value *out)
{
    const struct chat_value *text = &arguments->value[0];
    const struct chat_value *with = &arguments->value[1];
    TRY(chat_eval_texts(arguments));
    *out = chat_value_boolean(with->count <= text->count &&
                              memcmp(text->as.text + text->count - with->count,
                                     with->as.text, with->count) == 0);
    return ERR_OK;
}

/* Where the text at `from` has `what` next; `end`: nowhere. */
static const char *chat_eval_find(const char *from, const char *end,
                                  const struct chat_value *what)
{
    const char *found =
        memmem(from, (size_t)(end - from), what->as.text, what->count);
    return found != NULL ? found : end;
}

static enum err chat_eval_split(struct chat_eval_arguments *arguments,
                                struct chat_value *out)
{
    const struct chat_value *text = &arguments->value[0];
    const struct chat_value *by = &arguments->value[1];
    const char *end = text->as.text + text->count, *from = text->as.text;
    void *room = NULL;
    size_t parts = 1;
    TRY(chat_eval_texts(arguments));
    if (by->count == 0)
        return err_set(ERR_DATA, "line %d: 'split' by nothing",
                       arguments->node->line);
    while ((from = chat_eval_find(from, end, by)) != end) {
        from += by->count;
        parts++;
    }
    TRY(chat_value_work(arguments->scope->memory, text->count));
    TRY(chat_value_room(arguments->scope->memory,
                        parts * sizeof(struct chat_value), &room));
    struct chat_value *list = room;
    from = text->as.text;
    for (size_t p = 0; p < parts; p++) {
        const char *to = chat_eval_find(from, end, by);
        list[p] = chat_value_string(from, (size_t)(to - from));
        from = to + (to != end ? by->count : 0);
    }
    *out = (struct chat_value){ .kind = CHAT_VALUE_LIST,
                                .as.list = list,
                                .count = parts };
    return ERR_OK;
}

static enum err chat_eval_replace(struct chat_eval_arguments *arguments,
                                  struct chat_value *out)
{
    const struct chat_value *by = &arguments->value[2];
    struct chat_value parts;
    void *room = NULL;
    TRY(chat_eval_texts(arguments));
    size_t count = arguments->value[0].count;
    TRY(chat_eval_split(
        &(struct chat_eval_arguments){
            .scope = arguments->scope,
            .node = arguments->node,
            .value = { arguments->value[0], arguments->value[1] },
            .count = 2 },
        &parts));
    if (by->count > 0 && parts.count - 1 > CHAT_VALUE_BYTES_MAX / by->count)
        return err_set(ERR_DATA, "line %d: 'replace' makes too much text",
                       arguments->node->line);
    count += (parts.count - 1) * by->count;
    count -= (parts.count - 1) * arguments->value[1].count;
    TRY(chat_value_room(arguments->scope->memory, count, &room));
    char *to = room;
    for (size_t p = 0; p < parts.count; p++) {
        if (p > 0)
            to = mempcpy(to, by->as.text, by->count);
        to = mempcpy(to, parts.as.list[p].as.text, parts.as.list[p].count);
    }
    *out = chat_value_string(room, count);
    return ERR_OK;
}

static enum err chat_eval_length(struct chat_eval_arguments *arguments,
                                 struct chat_value *out)
{
    const struct chat_value *of = &arguments->value[0];
    size_t count = 0;
    if (of->kind == CHAT_VALUE_LIST) {
        count = of->count;
    } else if (of->kind == CHAT_VALUE_STRING) {
        for (size_t i = 0; i < of->count; i++)
            count += (of->as.text[i] & 0xc0) != 0x80;
        TRY(chat_value_work(arguments->scope->memory, of->count));
    } else if (of->kind == CHAT_VALUE_RECORD) {
        for (struct chat_field *f = of->as.record; f != NULL; f = f->next)
            count++;
    } else if (of->kind != CHAT_VALUE_UNDEFINED) {
        return err_set(ERR_DATA, "line %d: the length of %s",
                       arguments->node->line, chat_value_name(of));
    }
    *out = chat_value_integer((int64_t)count);
    return ERR_OK;
}

static enum err chat_eval_default(struct chat_eval_arguments *arguments,
                                  struct chat_value *out)
{
    const struct chat_value *value = arguments->value;
    bool falsy = arguments->count > 2 && chat_value_true(&value[2]);
    bool missing = value[0].kind == CHAT_VALUE_UNDEFINED ||
                   (falsy && !chat_value_true(&value[0]));
    *out = !missing               ? value[0]
           : arguments->count > 1 ? value[1]
                                  : chat_value_string("", 0);
    return ERR_OK;
}

static enum err chat_eval_end_item(struct chat_eval_arguments *arguments,
                                   bool last, struct chat_value *out)
{
    const struct chat_value *of = &arguments->value[0];
    if (of->kind != CHAT_VALUE_LIST)
        return err_set(ERR_DATA, "line %d: the first or last of %s",
                       arguments->node->line, chat_value_name(of));
    *out = of->count > 0 ? of->as.list[last ? of->count - 1 : 0]
                         : (struct chat_value){ 0 };
    return ERR_OK;
}

static enum err chat_eval_first(struct chat_eval_arguments *arguments,
                                struct chat_value *out)
{
    return chat_eval_end_item(arguments, false, out);
}

static enum err chat_eval_last(struct chat_eval_arguments *arguments,
                               struct chat_value *out)
{
    return chat_eval_end_item(arguments, true, out);
}

static enum err chat_eval_string(struct chat_eval_arguments *arguments,
                                 struct chat_value *out)
{
    if (chat_value_text(arguments->scope->memory, &arguments->value[0], out) !=
        ERR_OK)
        return err_prefix(ERR_DATA, "line %d", arguments->node->line);
    return ERR_OK;
}

static enum err chat_eval_get(struct chat_eval_arguments *arguments,
                              struct chat_value *out)
{
    const struct chat_value *value = arguments->value;
    const struct chat_field *field = NULL;
    if (value[1].kind == CHAT_VALUE_STRING)
        field = chat_value_field(&value[0], value[1].as.text, value[1].count);
    *out = field != NULL ? field->value
           : arguments->count > 2
               ? value[2]
               : (struct chat_value){ .kind = CHAT_VALUE_NONE };
    return ERR_OK;
}

static enum err chat_eval_raise(struct chat_eval_arguments *arguments,
                                struct chat_value *out)
{
    struct chat_value text;
    *out = (struct chat_value){ 0 };
    TRY(chat_eval_string(arguments, &text));
    return err_set(ERR_DATA, "line %d: raise_exception: %.*s",
                   arguments->node->line,
                   text.count < 200 ? (int)text.count : 200, text.as.text);
}

static const struct chat_eval_function chat_eval_functions[] = {
    { "raise_exception", chat_eval_raise, 1, 1, CHAT_VALUE_UNDEFINED },
};
static const struct chat_eval_function chat_eval_filters[] = {
    { "trim", chat_eval_trim, 1, 1, CHAT_VALUE_STRING },
    { "length", chat_eval_length, 1, 1, CHAT_VALUE_UNDEFINED },
    { "count", chat_eval_length, 1, 1, CHAT_VALUE_UNDEFINED },
    { "upper", chat_eval_upper, 1, 1, CHAT_VALUE_STRING },
    { "lower", chat_eval_lower, 1, 1, CHAT_VALUE_STRING },
    { "default", chat_eval_default, 1, 3, CHAT_VALUE_UNDEFINED },
    { "d", chat_eval_default, 1, 3, CHAT_VALUE_UNDEFINED },
    { "first", chat_eval_first, 1, 1, CHAT_VALUE_UNDEFINED },
    { "last", chat_eval_last, 1, 1, CHAT_VALUE_UNDEFINED },
    { "string", chat_eval_string, 1, 1, CHAT_VALUE_UNDEFINED },
    { "replace", chat_eval_replace, 3, 3, CHAT_VALUE_STRING },
};
static const struct chat_eval_function chat_eval_methods[] = {
    { "strip", chat_eval_trim, 1, 2, CHAT_VALUE_STRING },
    { "lstrip", chat_eval_lstrip, 1, 2, CHAT_VALUE_STRING },
    { "rstrip", chat_eval_rstrip, 1, 2, CHAT_VALUE_STRING },
    { "startswith", chat_eval_starts, 2, 2, CHAT_VALUE_STRING },
    { "endswith", chat_eval_ends, 2, 2, CHAT_VALUE_STRING },
    { "split", chat_eval_split, 2, 2, CHAT_VALUE_STRING },
    { "replace", chat_eval_replace, 3, 3, CHAT_VALUE_STRING },
    { "upper", chat_eval_upper, 1, 1, CHAT_VALUE_STRING },
    { "lower", chat_eval_lower, 1, 1, CHAT_VALUE_STRING },
    { "get", chat_eval_get, 2, 3, CHAT_VALUE_RECORD },
};
#define CHAT_EVAL_COUNT(table) (sizeof(table) / sizeof *(table))

static enum err chat_eval_apply(struct chat_eval_arguments *arguments,
                                const char *what, const char *name,
                                size_t bytes,
                                const struct chat_eval_function *table,
                                size_t functions, struct chat_value *out)
{
    const struct chat_node *node = arguments->node;
    int shown = bytes < 40 ? (int)bytes : 40;
    const struct chat_eval_function *found = NULL;
    for (size_t f = 0; f < functions; f++)
        if (strlen(table[f].name) == bytes &&
            memcmp(table[f].name, name, bytes) == 0)
            found = &table[f];
    if (found == NULL)
        return err_set(ERR_DATA, "line %d: the %s '%.*s' is not known here",
                       node->line, what, shown, name);
    for (struct chat_node *a = node->b; a != NULL; a = a->next) {
        if (a->bytes > 0 || arguments->count == found->most)
            return err_set(ERR_DATA, "line %d: '%.*s' with %s", node->line,
                           shown, name,
                           a->bytes > 0 ? "a named argument, not known here"
                                        : "too many arguments");
        TRY(chat_eval(arguments->scope, a->a,
                      &arguments->value[arguments->count]));
        arguments->count++;
    }
    if (arguments->count < found->least)
        return err_set(ERR_DATA, "line %d: '%.*s' with too few arguments",
                       node->line, shown, name);
    const struct chat_value *of = &arguments->value[0];
    if (found->of != CHAT_VALUE_UNDEFINED && found->of != of->kind)
        return err_set(ERR_DATA, "line %d: '%.*s' of %s", node->line, shown,
                       name, chat_value_name(of));
    return found->run(arguments, out);
}

/* namespace(name=value, ...) */
static enum err chat_eval_namespace(struct chat_scope *scope,
                                    const struct chat_node *node,
                                    struct chat_value *out)
{
    struct chat_value record = { .kind = CHAT_VALUE_RECORD,
                                 .may_change = true };
    struct chat_value value;
    /* a field of its own that cannot be named holds the others together */
    TRY(chat_value_add_field(scope->memory, &record, "", 0,
                             (struct chat_value){ 0 }));
    for (struct chat_node *a = node->b; a != NULL; a = a->next) {
        if (a->bytes == 0)
            return err_set(ERR_DATA, "line %d: 'namespace' takes name=value",
                           node->line);
        TRY(chat_eval(scope, a->a, &value));
        struct chat_value rest = { .kind = CHAT_VALUE_RECORD,
                                   .as.record = record.as.record->next };
        TRY(chat_value_add_field(scope->memory, &rest, a->text, a->bytes,
                                 value));
        record.as.record->next = rest.as.record;
    }
    *out = record;
    return ERR_OK;
}

enum err chat_eval_call(struct chat_scope *scope, const struct chat_node *node,
                        struct chat_value *out)
{
    const struct chat_node *callee = node->a;
    struct chat_eval_arguments arguments = { .scope = scope, .node = node };
    if (callee->kind == CHAT_NODE_NAME && callee->bytes == 9 &&
        memcmp(callee->text, "namespace", 9) == 0)
        return chat_eval_namespace(scope, node, out);
    if (callee->kind == CHAT_NODE_NAME)
        return chat_eval_apply(&arguments, "function", callee->text,
                               callee->bytes, chat_eval_functions,
                               CHAT_EVAL_COUNT(chat_eval_functions), out);
    if (callee->kind != CHAT_NODE_ATTRIBUTE)
        return err_set(ERR_DATA, "line %d: a call of what has no name",
                       node->line);
    TRY(chat_eval(scope, callee->a, &arguments.value[0]));
    arguments.count = 1;
    return chat_eval_apply(&arguments, "method", callee->text, callee->bytes,
                           chat_eval_methods,
                           CHAT_EVAL_COUNT(chat_eval_methods), out);
}

enum err chat_eval_filter(struct chat_scope *scope,
                          const struct chat_node *node, struct chat_value *out)
{
    struct chat_eval_arguments arguments = { .scope = scope, .node = node };
    TRY(chat_eval(scope, node->a, &arguments.value[0]));
    arguments.count = 1;
    return chat_eval_apply(&arguments, "filter", node->text, node->bytes,
                           chat_eval_filters,
                           CHAT_EVAL_COUNT(chat_eval_filters), out);
}
