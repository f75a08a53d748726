/* Calls: functions, macros, filters and methods of chat templates, a table of
 * names each.
 *
 * Four kinds of names can be called: functions, as range(3); filters, x | trim;
 * tests, x is string (chat_eval_text.c); and methods that objects have in
 * Python, x.strip(). Filters and methods often do the same thing by two names.
 * So all of them are C functions of one shape, values in, the first of them the
 * object, a value out, and a row of a table gives each a name, the number of
 * arguments, their names, and the kind of object that it takes. Whatever does
 * not fit is refused before the function runs, which need not look at it again.
 *
 * A macro is a function in the template's own language, whose value is the text
 * that its statements write. Its variables lie within those of the place where
 * it stands, not of the place that calls it (lexical scope), so a macro at the
 * top does not see the variables of the loop that calls it, as in Jinja.
 *
 * namespace() makes the only thing that can be changed. A `set` in a loop is
 * gone with that turn of the loop, so templates that look for something, say
 * for the last user's message, keep what they have found in a field of a
 * namespace. */
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "src/text/chat/chat_eval.h"

static enum err call_default(struct chat_eval_arguments *arguments,
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

static enum err call_string(struct chat_eval_arguments *arguments,
                            struct chat_value *out)
{
    return chat_eval_printed(arguments->scope, arguments->node,
                             &arguments->value[0], out);
}

static enum err call_tojson(struct chat_eval_arguments *arguments,
                            struct chat_value *out)
{
    const struct chat_value *value = arguments->value;
    if (chat_value_true(&value[2]))
        return err_set(ERR_DATA, "line %d: 'tojson' of ASCII is not known here",
                       arguments->node->line);
    int64_t indent =
        value[1].kind == CHAT_VALUE_INTEGER ? value[1].as.integer : -1;
    if (indent > 64)
        return err_set(ERR_DATA, "line %d: 'tojson' with %lld blanks",
                       arguments->node->line, (long long)indent);
    return err_prefix(chat_value_print(arguments->scope->memory, &value[0],
                                       true, indent, out),
                      "line %d", arguments->node->line);
}

static enum err call_raise(struct chat_eval_arguments *arguments,
                           struct chat_value *out)
{
    struct chat_value text;
    *out = (struct chat_value){ 0 };
    TRY(call_string(arguments, &text));
    return err_set(ERR_DATA, "line %d: raise_exception: %.*s",
                   arguments->node->line,
                   text.count < 200 ? (int)text.count : 200, text.as.text);
}

/* The day, or that of SOURCE_DATE_EPOCH, seconds since 1970 in UTC. */
static enum err call_strftime(struct chat_eval_arguments *arguments,
                              struct chat_value *out)
{
    const struct chat_value *format = &arguments->value[0];
    const char *given = getenv("SOURCE_DATE_EPOCH");
    char *end = NULL;
    char text[128], pattern[128];
    struct tm date;
    errno = 0;
    time_t now = given != NULL ? (time_t)strtoll(given, &end, 10) : time(NULL);
    if (given != NULL && (*given == '\0' || *end != '\0' || errno != 0))
        return err_set(ERR_USAGE,
                       "SOURCE_DATE_EPOCH is '%s'; it has to be a "
                       "number of seconds since 1970",
                       given);
    bool known = given != NULL ? gmtime_r(&now, &date) != NULL
                               : localtime_r(&now, &date) != NULL;
    if (!known)
        return err_set(ERR_USAGE,
                       "%lld seconds since 1970 (SOURCE_DATE_EPOCH, else the "
                       "clock): there is no such date",
                       (long long)now);
    if (format->count >= sizeof pattern)
        return err_set(ERR_DATA,
                       "line %d: strftime_now('%.40s..') has a format of %zu "
                       "bytes, at most %zu",
                       arguments->node->line, format->as.text, format->count,
                       sizeof pattern - 1);
    memcpy(pattern, format->as.text, format->count);
    pattern[format->count] = '\0';
    void *room = NULL;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
    size_t bytes = strftime(text, sizeof text, pattern, &date);
#pragma GCC diagnostic pop
    TRY(chat_value_room(arguments->scope->memory, bytes, &room));
    memcpy(room, text, bytes);
    *out = chat_value_string(room, bytes);
    return ERR_OK;
}

#define ANY CHAT_VALUE_UNDEFINED
#define TEXT CHAT_VALUE_STRING
#define DICT CHAT_VALUE_RECORD
static const struct chat_eval_function call_functions[] = {
    { "raise_exception", call_raise, 0, 1, 1, ANY, { 0 } },
    { "strftime_now", call_strftime, 0, 1, 1, TEXT, { "format" } },
    { "range", chat_eval_range, 0, 1, 3, ANY, { 0 } },
};
#define ENDS (CHAT_EVAL_FRONT | CHAT_EVAL_BACK)
#define REJECTATTR (CHAT_EVAL_ATTRIBUTE | CHAT_EVAL_REJECT)
#define FIELDS (CHAT_EVAL_KEYS | CHAT_EVAL_VALUES)
static const struct chat_eval_function call_filters[] = {
    { "trim", chat_eval_strip, ENDS, 1, 2, TEXT, { "chars" } },
    { "length", chat_eval_length, 0, 1, 1, ANY, { 0 } },
    { "count", chat_eval_length, 0, 1, 1, ANY, { 0 } },
    { "upper", chat_eval_case, CHAT_EVAL_UPPER, 1, 1, TEXT, { 0 } },
    { "lower", chat_eval_case, 0, 1, 1, TEXT, { 0 } },
    { "title", chat_eval_title, CHAT_EVAL_UPPER, 1, 1, TEXT, { 0 } },
    { "capitalize", chat_eval_title, 0, 1, 1, TEXT, { 0 } },
    { "default", call_default, 0, 1, 3, ANY, { "default_value", "boolean" } },
    { "d", call_default, 0, 1, 3, ANY, { "default_value", "boolean" } },
    { "first", chat_eval_end, CHAT_EVAL_FRONT, 1, 1, ANY, { 0 } },
    { "last", chat_eval_end, CHAT_EVAL_BACK, 1, 1, ANY, { 0 } },
    { "string", call_string, 0, 1, 1, ANY, { 0 } },
    { "safe", call_string, 0, 1, 1, ANY, { 0 } },
    { "int", chat_eval_int, 0, 1, 2, ANY, { "default" } },
    { "replace", chat_eval_replace, 0, 3, 3, TEXT, { "old", "new" } },
    { "indent",
      chat_eval_indent,
      0,
      1,
      4,
      TEXT,
      { "width", "first", "blank" } },
    { "join", chat_eval_join, 0, 1, 3, ANY, { "d", "attribute" } },
    { "items", chat_eval_fields, FIELDS, 1, 1, ANY, { 0 } },
    { "list", chat_eval_list, 0, 1, 1, ANY, { 0 } },
    { "reverse", chat_eval_reverse, 0, 1, 1, ANY, { 0 } },
    { "sort",
      chat_eval_sort,
      0,
      1,
      4,
      ANY,
      { "reverse", "case_sensitive", "attribute" } },
    { "dictsort", chat_eval_dictsort, FIELDS, 1, 1, DICT, { 0 } },
    { "unique", chat_eval_unique, 0, 1, 1, ANY, { 0 } },
    { "min", chat_eval_extreme, CHAT_EVAL_LEAST, 1, 1, ANY, { 0 } },
    { "max", chat_eval_extreme, 0, 1, 1, ANY, { 0 } },
    { "select", chat_eval_select, 0, 1, 3, ANY, { 0 } },
    { "reject", chat_eval_select, CHAT_EVAL_REJECT, 1, 3, ANY, { 0 } },
    { "selectattr", chat_eval_select, CHAT_EVAL_ATTRIBUTE, 2, 4, ANY, { 0 } },
    { "rejectattr", chat_eval_select, REJECTATTR, 2, 4, ANY, { 0 } },
    { "map", chat_eval_map, 0, 2, 4, ANY, { NULL, NULL, "attribute" } },
    { "tojson", call_tojson, 0, 1, 3, ANY, { "indent", "ensure_ascii" } },
};
static const struct chat_eval_function call_methods[] = {
    { "strip", chat_eval_strip, ENDS, 1, 2, TEXT, { 0 } },
    { "lstrip", chat_eval_strip, CHAT_EVAL_FRONT, 1, 2, TEXT, { 0 } },
    { "rstrip", chat_eval_strip, CHAT_EVAL_BACK, 1, 2, TEXT, { 0 } },
    { "startswith", chat_eval_ends, CHAT_EVAL_FRONT, 2, 2, TEXT, { 0 } },
    { "endswith", chat_eval_ends, CHAT_EVAL_BACK, 2, 2, TEXT, { 0 } },
    { "split", chat_eval_split, 0, 1, 3, TEXT, { "sep", "maxsplit" } },
    { "replace", chat_eval_replace, 0, 3, 3, TEXT, { 0 } },
    { "upper", chat_eval_case, CHAT_EVAL_UPPER, 1, 1, TEXT, { 0 } },
    { "lower", chat_eval_case, 0, 1, 1, TEXT, { 0 } },
    { "title", chat_eval_title, CHAT_EVAL_UPPER, 1, 1, TEXT, { 0 } },
    { "capitalize", chat_eval_title, 0, 1, 1, TEXT, { 0 } },
    { "format", chat_eval_format, 0, 1, 4, TEXT, { 0 } },
    { "find", chat_eval_find, 0, 2, 2, TEXT, { 0 } },
    { "get", chat_eval_get, 0, 2, 3, DICT, { 0 } },
    { "items", chat_eval_fields, FIELDS, 1, 1, DICT, { 0 } },
    { "keys", chat_eval_fields, CHAT_EVAL_KEYS, 1, 1, DICT, { 0 } },
    { "values", chat_eval_fields, CHAT_EVAL_VALUES, 1, 1, DICT, { 0 } },
};
#define COUNT(table) (sizeof(table) / sizeof *(table))

static const struct chat_eval_function *
call_find(const struct chat_eval_function *table, size_t functions,
          const char *name, size_t bytes)
{
    for (size_t f = 0; f < functions; f++)
        if (chat_value_is_name(name, bytes, table[f].name))
            return &table[f];
    return NULL;
}

/* Where the argument goes; 0: nowhere. */
static size_t call_place(const struct chat_eval_function *of,
                         const struct chat_node *argument, size_t next)
{
    if (argument->bytes == 0)
        return next < of->most ? next : 0;
    for (size_t n = 0; n < COUNT(of->names) && n + 1 < of->most; n++)
        if (of->names[n] != NULL &&
            chat_value_is_name(argument->text, argument->bytes, of->names[n]))
            return n + 1;
    return 0;
}

bool chat_eval_is_function(const char *name, size_t bytes)
{
    return chat_value_is_name(name, bytes, "namespace") ||
           chat_value_is_name(name, bytes, "dict") ||
           call_find(call_functions, COUNT(call_functions), name, bytes) !=
               NULL;
}

enum err chat_eval_read(struct chat_eval_arguments *arguments,
                        const struct chat_eval_function *of)
{
    const struct chat_node *node = arguments->node;
    size_t next = arguments->count > 0 ? arguments->count : 1;
    for (struct chat_node *a = node->b; a != NULL; a = a->next) {
        size_t place = call_place(of, a, next);
        if (place == 0)
            return err_set(ERR_DATA, "line %d: '%s' with %s", node->line,
                           of->name,
                           a->bytes > 0 ? "a named argument, not known here"
                                        : "too many arguments");
        TRY(chat_eval(arguments->scope, a->a, &arguments->value[place]));
        next += a->bytes == 0;
        arguments->count =
            place >= arguments->count ? place + 1 : arguments->count;
    }
    return ERR_OK;
}

static enum err call_run(struct chat_eval_arguments *arguments,
                         const struct chat_eval_function *of,
                         struct chat_value *out)
{
    assert(of->least > 0 && of->most <= CHAT_EVAL_ARGUMENTS);
    const struct chat_value *object = &arguments->value[0];
    arguments->ways = of->ways;
    if (arguments->count < of->least)
        return err_set(ERR_DATA, "line %d: '%s' with too few arguments",
                       arguments->node->line, of->name);
    if (of->of != ANY && of->of != object->kind)
        return err_set(ERR_DATA, "line %d: '%s' of %s", arguments->node->line,
                       of->name, chat_value_name(object));
    return of->run(arguments, out);
}

static enum err call_unknown(const struct chat_node *node, const char *what,
                             const char *name, size_t bytes)
{
    return err_set(ERR_DATA, "line %d: the %s '%.*s' is not known here",
                   node->line, what, bytes < 40 ? (int)bytes : 40, name);
}

enum err chat_eval_filter_named(struct chat_eval_arguments *arguments,
                                const char *name, size_t bytes,
                                struct chat_value *out)
{
    const struct chat_eval_function *of =
        call_find(call_filters, COUNT(call_filters), name, bytes);
    if (of == NULL)
        return call_unknown(arguments->node, "filter", name, bytes);
    if (arguments->count > of->most)
        return err_set(ERR_DATA, "line %d: '%s' with too many arguments",
                       arguments->node->line, of->name);
    return call_run(arguments, of, out);
}

enum err chat_eval_filter(struct chat_scope *scope,
                          const struct chat_node *node, struct chat_value *out)
{
    struct chat_eval_arguments arguments = { .scope = scope, .node = node };
    const struct chat_eval_function *of =
        call_find(call_filters, COUNT(call_filters), node->text, node->bytes);
    if (of == NULL)
        return call_unknown(node, "filter", node->text, node->bytes);
    TRY(chat_eval(scope, node->a, &arguments.value[0]));
    arguments.count = 1;
    /* as Jinja's do, these take whatever is printed for a text */
    if (of->of == TEXT && arguments.value[0].kind != TEXT)
        TRY(call_string(&arguments, &arguments.value[0]));
    TRY(chat_eval_read(&arguments, of));
    return call_run(&arguments, of, out);
}

/* namespace(name=value, ...) and dict(name=value, ...) */
static enum err call_namespace(struct chat_scope *scope,
                               const struct chat_node *node, bool may_change,
                               struct chat_value *out)
{
    struct chat_value record = { .kind = CHAT_VALUE_RECORD,
                                 .may_change = may_change };
    struct chat_value value;
    /* a field of its own that cannot be named holds the others together */
    if (may_change)
        TRY(chat_value_add_field(scope->memory, &record, "", 0,
                                 (struct chat_value){ 0 }));
    for (struct chat_node *a = node->b; a != NULL; a = a->next) {
        if (a->bytes == 0)
            return err_set(ERR_DATA, "line %d: '%s' takes name=value",
                           node->line, may_change ? "namespace" : "dict");
        TRY(chat_eval(scope, a->a, &value));
        TRY(chat_value_set_field(scope->memory, &record, a->text, a->bytes,
                                 value));
    }
    *out = record;
    return ERR_OK;
}

/* A macro's parameters, by place or name, and its text. */
static enum err call_macro(struct chat_scope *scope,
                           const struct chat_node *node,
                           const struct chat_macro *macro,
                           struct chat_value *out)
{
    struct chat_frame frame = { { .kind = CHAT_VALUE_RECORD }, macro->frame };
    struct chat_value value;
    const struct chat_node *parameter = macro->node->a, *p = NULL;
    for (struct chat_node *a = node->b; a != NULL; a = a->next) {
        if (a->bytes == 0) {
            p = parameter;
            parameter = p != NULL ? p->next : NULL;
        } else {
            for (p = macro->node->a; p != NULL; p = p->next)
                if (p->bytes == a->bytes &&
                    memcmp(p->text, a->text, a->bytes) == 0)
                    break;
        }
        if (p == NULL)
            return err_set(
                ERR_DATA, "line %d: the macro '%.*s' has no such argument",
                node->line, (int)macro->node->bytes, macro->node->text);
        TRY(chat_eval(scope, a->a, &value));
        TRY(chat_value_set_field(scope->memory, &frame.own, p->text, p->bytes,
                                 value));
    }
    struct chat_scope inner = { scope->memory, &frame, scope->job };
    for (p = macro->node->a; p != NULL; p = p->next) {
        if (chat_value_field(&frame.own, p->text, p->bytes) != NULL)
            continue;
        value = (struct chat_value){ 0 };
        if (p->a != NULL)
            TRY(chat_eval(&inner, p->a, &value));
        TRY(chat_value_set_field(scope->memory, &frame.own, p->text, p->bytes,
                                 value));
    }
    return chat_render_capture(&inner, macro->node->b, out);
}

enum err chat_eval_call(struct chat_scope *scope, const struct chat_node *node,
                        struct chat_value *out)
{
    const struct chat_node *callee = node->a;
    struct chat_eval_arguments arguments = { .scope = scope, .node = node };
    struct chat_value value = { 0 };
    const struct chat_eval_function *of = NULL;
    if (callee->kind == CHAT_NODE_NAME) {
        TRY(chat_eval_variable(scope, callee->text, callee->bytes, &value));
        if (value.kind == CHAT_VALUE_MACRO && value.as.macro != NULL)
            return call_macro(scope, node, value.as.macro, out);
        bool namespace =
            chat_value_is_name(callee->text, callee->bytes, "namespace");
        if (namespace ||
            chat_value_is_name(callee->text, callee->bytes, "dict"))
            return call_namespace(scope, node, namespace, out);
        of = call_find(call_functions, COUNT(call_functions), callee->text,
                       callee->bytes);
        if (of == NULL)
            return call_unknown(node, "function", callee->text, callee->bytes);
        /* a function's first argument takes the object's place */
        struct chat_node *first = node->b;
        if (first != NULL && first->bytes == 0) {
            struct chat_node rest = *node;
            rest.b = first->next;
            TRY(chat_eval(scope, first->a, &arguments.value[0]));
            arguments.count = 1;
            arguments.node = &rest;
            TRY(chat_eval_read(&arguments, of));
            arguments.node = node;
        }
        return call_run(&arguments, of, out);
    }
    if (callee->kind != CHAT_NODE_ATTRIBUTE)
        return err_set(ERR_DATA, "line %d: a call of what has no name",
                       node->line);
    TRY(chat_eval(scope, callee->a, &arguments.value[0]));
    if (arguments.value[0].kind == CHAT_VALUE_UNDEFINED)
        return err_set(ERR_DATA, "line %d: '%.*s' of what is not defined",
                       node->line, callee->bytes < 40 ? (int)callee->bytes : 40,
                       callee->text);
    of = call_find(call_methods, COUNT(call_methods), callee->text,
                   callee->bytes);
    if (of == NULL)
        return call_unknown(node, "method", callee->text, callee->bytes);
    arguments.count = 1;
    TRY(chat_eval_read(&arguments, of));
    return call_run(&arguments, of, out);
}
