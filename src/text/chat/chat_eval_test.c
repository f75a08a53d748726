/* Tests of templates, "is name" and those of select() and its like.
 *
 * A test asks something of a value, with at most one value more: x is string, x
 * is divisibleby 3. select() and its like take tests by name, also those that
 * have a sign, select("==", 1), which is why comparisons are in this table. */
#include <assert.h>

#include "src/text/chat/chat_eval.h"

/* Tests of a value alone. */
static bool test_alone(const struct chat_value *value, const char *name,
                       size_t bytes, bool *out)
{
    enum chat_value_kind kind = value->kind;
    bool truth = kind == CHAT_VALUE_BOOLEAN && value->as.integer != 0;
    bool items = kind == CHAT_VALUE_STRING || kind == CHAT_VALUE_LIST ||
                 kind == CHAT_VALUE_RECORD || kind == CHAT_VALUE_UNDEFINED;
    bool integer = kind == CHAT_VALUE_INTEGER;
    const struct {
        const char *name;
        bool holds;
    } tests[] = {
        { "defined", kind != CHAT_VALUE_UNDEFINED },
        { "undefined", kind == CHAT_VALUE_UNDEFINED },
        { "none", kind == CHAT_VALUE_NONE },
        { "string", kind == CHAT_VALUE_STRING },
        /* a truth value is a number in Python, but no integer in Jinja */
        { "number", integer || kind == CHAT_VALUE_BOOLEAN },
        { "integer", integer },
        { "float", false },
        { "boolean", kind == CHAT_VALUE_BOOLEAN },
        { "true", truth },
        { "false", kind == CHAT_VALUE_BOOLEAN && !truth },
        { "mapping", kind == CHAT_VALUE_RECORD },
        { "callable", kind == CHAT_VALUE_MACRO },
        { "iterable", items },
        { "sequence", items },
        { "odd", integer && value->as.integer % 2 != 0 },
        { "even", integer && value->as.integer % 2 == 0 },
    };
    for (size_t t = 0; t < sizeof tests / sizeof *tests; t++)
        if (chat_value_is_name(name, bytes, tests[t].name)) {
            *out = tests[t].holds;
            return true;
        }
    return false;
}

enum err chat_eval_holds(struct chat_eval_arguments *arguments,
                         const char *name, size_t bytes, bool *out)
{
    assert(name != NULL && out != NULL);
    /* names, whether it is of equal values, and the order that they have not */
    static const struct {
        const char *name;
        bool equal, not ;
        int order;
    } pairs[] = {
        { "equalto", true, false, 0 },
        { "eq", true, false, 0 },
        { "==", true, false, 0 },
        { "ne", true, true, 0 },
        { "!=", true, true, 0 },
        { "lt", false, false, -1 },
        { "lessthan", false, false, -1 },
        { "gt", false, false, 1 },
        { "greaterthan", false, false, 1 },
        { "ge", false, true, -1 },
        { "le", false, true, 1 },
    };
    const struct chat_value *value = arguments->value;
    struct chat_memory *memory = arguments->scope->memory;
    int line = arguments->node->line, order = 0;
    if (arguments->count < 2 && test_alone(value, name, bytes, out))
        return ERR_OK;
    TRY(chat_value_work(memory, value[0].count + value[1].count));
    for (size_t p = 0; p < sizeof pairs / sizeof *pairs; p++) {
        if (!chat_value_is_name(name, bytes, pairs[p].name) ||
            arguments->count < 2)
            continue;
        if (pairs[p].equal)
            TRY(chat_value_equal(memory, &value[0], &value[1], out));
        else
            TRY(chat_eval_order(line, &value[0], &value[1], &order));
        if (!pairs[p].equal)
            *out = pairs[p].order < 0 ? order < 0 : order > 0;
        *out = *out != pairs[p].not ;
        return ERR_OK;
    }
    if (chat_value_is_name(name, bytes, "divisibleby") &&
        value[0].kind == CHAT_VALUE_INTEGER &&
        value[1].kind == CHAT_VALUE_INTEGER && value[1].as.integer > 0) {
        *out = value[0].as.integer % value[1].as.integer == 0;
        return ERR_OK;
    }
    if (chat_value_is_name(name, bytes, "in") &&
        value[1].kind == CHAT_VALUE_LIST) {
        *out = false;
        for (size_t i = 0; i < value[1].count && !*out; i++)
            TRY(chat_value_equal(memory, &value[0], &value[1].as.list[i], out));
        return ERR_OK;
    }
    return err_set(ERR_DATA, "line %d: the test 'is %.*s' is not known here",
                   line, bytes < 40 ? (int)bytes : 40, name);
}

enum err chat_eval_test(struct chat_scope *scope, const struct chat_node *node,
                        struct chat_value *out)
{
    static const struct chat_eval_function any = { .name = "a test",
                                                   .most = 2 };
    struct chat_eval_arguments arguments = { .scope = scope, .node = node };
    bool holds = false;
    TRY(chat_eval(scope, node->a, &arguments.value[0]));
    TRY(chat_eval_read(&arguments, &any));
    TRY(chat_eval_holds(&arguments, node->text, node->bytes, &holds));
    *out = chat_value_boolean(holds);
    return ERR_OK;
}
