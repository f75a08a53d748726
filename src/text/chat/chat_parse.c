/* Statements of a template.
 *
 * The parser is one of recursive descent: there is a function for each
 * construct, which reads the words that it begins with, calls the functions of
 * its parts, and leaves parse->word behind its last one. The next word decides
 * what comes (two, where "{%" and a name say that a block ends), and no word is
 * read twice. A body goes on up to any statement that can end or divide a
 * block, and whoever has begun it then asks for the one that it wants: so an
 * endif that closes a `for` is refused there, with the name that should stand
 * in its place.
 *
 * Recursion lies on C's stack, and templates are strangers' files. So levels of
 * brackets and blocks are counted (chat_parse_down()), and so is the depth
 * of the tree: a row of operators is read in a loop, but makes a tree as deep,
 * and chat_eval() goes down into that by recursion.
 *
 * Nodes are also in a list of their own, in the order in which they were made,
 * so that a template that is refused in its middle is freed without any thought
 * for what of its tree is there. */
#include "src/text/chat/chat_parse.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/text/chat/chat_parse_impl.h"

bool chat_parse_take(struct chat_parse *parse, const char *sign)
{
    bool there = chat_parse_sees(parse, sign);
    parse->word += there;
    return there;
}

bool chat_parse_take_name(struct chat_parse *parse, const char *name)
{
    bool there = chat_parse_sees_name(parse, name);
    parse->word += there;
    return there;
}

enum err chat_parse_refuse(const struct chat_parse *parse, const char *want)
{
    const struct chat_lex_word *word = parse->word;
    int shown = word->bytes < 40 ? (int)word->bytes : 40;
    if (word->kind == CHAT_LEX_END)
        return err_set(ERR_DATA,
                       "line %d: the template ends where %s should follow",
                       word->line, want);
    return err_set(ERR_DATA, "line %d: %s%.*s where %s should follow",
                   word->line, word->kind == CHAT_LEX_DATA ? "text: " : "",
                   shown, word->text, want);
}

enum err chat_parse_need(struct chat_parse *parse, const char *sign)
{
    char want[8] = "'";
    if (chat_parse_take(parse, sign))
        return ERR_OK;
    strncat(want, sign, 4);
    strcat(want, "'");
    return chat_parse_refuse(parse, want);
}

int chat_parse_depth(const struct chat_node *node)
{
    int depth = 0;
    for (; node != NULL; node = node->next)
        depth = node->depth > depth ? node->depth : depth;
    return depth;
}

enum err chat_parse_make(struct chat_parse *parse, enum chat_node_kind kind,
                         const struct chat_lex_word *word, struct chat_node *a,
                         struct chat_node *b, struct chat_node **out)
{
    assert(word != NULL && out != NULL);
    struct chat_node *node = NULL;
    TRY(new_zeroed(&node, 1));
    node->made = parse->tree->made;
    parse->tree->made = node;
    int below = chat_parse_depth(a), right = chat_parse_depth(b);
    node->kind = kind;
    node->line = word->line;
    node->text = word->text;
    node->bytes = word->bytes;
    node->value = word->value;
    node->a = a;
    node->b = b;
    node->depth = (below > right ? below : right) + 1;
    *out = node;
    if (node->depth <= CHAT_PARSE_DEPTH_MAX)
        return ERR_OK;
    return err_set(ERR_DATA, "line %d: more than %d levels of expressions",
                   word->line, CHAT_PARSE_DEPTH_MAX);
}

enum err chat_parse_down(struct chat_parse *parse)
{
    if (++parse->depth <= CHAT_PARSE_DEPTH_MAX)
        return ERR_OK;
    return err_set(ERR_DATA,
                   "line %d: more than %d levels of brackets or blocks",
                   parse->word->line, CHAT_PARSE_DEPTH_MAX);
}

static enum err chat_parse_close(struct chat_parse *parse)
{
    if (parse->word->kind != CHAT_LEX_BLOCK_CLOSE)
        return chat_parse_refuse(parse, "'%}'");
    parse->word++;
    return ERR_OK;
}

static enum err chat_parse_body(struct chat_parse *parse,
                                struct chat_node **out);

/* {% NAME %}, which ends a block */
static enum err chat_parse_end(struct chat_parse *parse, const char *name,
                               const struct chat_lex_word *begin)
{
    if (parse->word->kind == CHAT_LEX_END)
        return err_set(ERR_DATA, "line %d: '%.*s' without its '%s'",
                       begin->line, (int)begin->bytes, begin->text, name);
    parse->word++; /* {% */
    if (!chat_parse_take_name(parse, name))
        return chat_parse_refuse(parse, name);
    return chat_parse_close(parse);
}

/* {% NAME, which divides a block, if it is next. */
static bool chat_parse_divides(struct chat_parse *parse, const char *name)
{
    bool there = parse->word->kind == CHAT_LEX_BLOCK &&
                 chat_lex_is(parse->word + 1, CHAT_LEX_NAME, name);
    parse->word += there ? 2 : 0;
    return there;
}

/* What stands behind {% else %}; NULL: there is none. */
static enum err chat_parse_else(struct chat_parse *parse,
                                struct chat_node **out)
{
    *out = NULL;
    if (!chat_parse_divides(parse, "else"))
        return ERR_OK;
    TRY(chat_parse_close(parse));
    return chat_parse_body(parse, out);
}

/* Behind "if" or "elif", whose condition has no if-else of its own. An elif is
 * an `if` in the other's place of `else`; of a row of them the innermost, which
 * is read to its end first, takes the only endif. */
static enum err chat_parse_if(struct chat_parse *parse,
                              const struct chat_lex_word *begin,
                              struct chat_node **out)
{
    struct chat_node *condition = NULL, *then = NULL, *other = NULL;
    TRY(chat_parse_down(parse));
    TRY(chat_parse_expr_or(parse, &condition));
    TRY(chat_parse_close(parse));
    TRY(chat_parse_body(parse, &then));
    bool more = chat_parse_divides(parse, "elif");
    TRY(more ? chat_parse_if(parse, begin, &other)
             : chat_parse_else(parse, &other));
    TRY(chat_parse_make(parse, CHAT_NODE_IF, begin, condition, then, out));
    (*out)->c = other;
    parse->depth--;
    return more ? ERR_OK : chat_parse_end(parse, "endif", begin);
}

/* The variables of a 'for', (a, b) or one. */
static enum err chat_parse_targets(struct chat_parse *parse,
                                   struct chat_node **out)
{
    bool closed = chat_parse_take(parse, "(");
    struct chat_node **last = out;
    *out = NULL;
    do {
        if (parse->word->kind != CHAT_LEX_NAME)
            return chat_parse_refuse(parse, "a variable");
        TRY(chat_parse_make(parse, CHAT_NODE_ARGUMENT, parse->word++, NULL,
                            NULL, last));
        last = &(*last)->next;
    } while (chat_parse_take(parse, ","));
    return closed ? chat_parse_need(parse, ")") : ERR_OK;
}

/* The list has no if-else of its own, since an `if` behind it is the loop's: it
 * chooses items, and loop.index counts only those that are left, as in Jinja.
 * Python has no such statement, only comprehensions have this `if`. */
static enum err chat_parse_for(struct chat_parse *parse, struct chat_node **out)
{
    const struct chat_lex_word *begin = parse->word - 1;
    const struct chat_lex_word *name = parse->word;
    struct chat_node *list = NULL, *body = NULL, *filter = NULL, *names = NULL;
    struct chat_node *other = NULL;
    TRY(chat_parse_targets(parse, &names));
    if (!chat_parse_take_name(parse, "in"))
        return chat_parse_refuse(parse, "'in'");
    TRY(chat_parse_expr_tuple(parse, false, &list));
    if (chat_parse_take_name(parse, "if"))
        TRY(chat_parse_expr_read(parse, &filter));
    TRY(chat_parse_close(parse));
    TRY(chat_parse_body(parse, &body));
    TRY(chat_parse_else(parse, &other));
    TRY(chat_parse_make(parse, CHAT_NODE_FOR, name, list, body, out));
    (*out)->c = filter;
    (*out)->other = other;
    (*out)->d = names;
    return chat_parse_end(parse, "endfor", begin);
}

/* The statements of a block up to its end, as a value, through filters that
 * follow. */
static enum err chat_parse_capture(struct chat_parse *parse,
                                   const struct chat_lex_word *begin,
                                   const char *end, bool filter,
                                   struct chat_node **out)
{
    struct chat_node *capture = NULL, *body = NULL;
    TRY(chat_parse_make(parse, CHAT_NODE_CAPTURE, begin, NULL, NULL, &capture));
    *out = capture;
    if (filter || chat_parse_take(parse, "|"))
        TRY(chat_parse_expr_filters(parse, out));
    TRY(chat_parse_close(parse));
    TRY(chat_parse_body(parse, &body));
    capture->b = body;
    return chat_parse_end(parse, end, begin);
}

/* One variable, or a field of a namespace, of a value, or of what stands up to
 * {% endset %}. Jinja's "set a, b = ..." is not here. */
static enum err chat_parse_set(struct chat_parse *parse, struct chat_node **out)
{
    const struct chat_lex_word *name = parse->word++;
    struct chat_node *value = NULL, *attribute = NULL;
    if (name->kind != CHAT_LEX_NAME) {
        parse->word--;
        return chat_parse_refuse(parse, "a variable");
    }
    if (chat_parse_take(parse, ".")) {
        if (parse->word->kind != CHAT_LEX_NAME)
            return chat_parse_refuse(parse, "a name");
        TRY(chat_parse_make(parse, CHAT_NODE_ATTRIBUTE, parse->word++, NULL,
                            NULL, &attribute));
    }
    if (parse->word->kind == CHAT_LEX_BLOCK_CLOSE ||
        chat_lex_is(parse->word, CHAT_LEX_SIGN, "|")) {
        TRY(chat_parse_capture(parse, name - 1, "endset", false, &value));
    } else {
        TRY(chat_parse_need(parse, "="));
        TRY(chat_parse_expr_tuple(parse, true, &value));
        TRY(chat_parse_close(parse));
    }
    return chat_parse_make(parse, CHAT_NODE_SET, name, value, attribute, out);
}

/* {% macro name(a, b=1) %}: a parameter that is not given is its value behind "=",
 * else undefined, which is no error before something is asked of it. */
static enum err chat_parse_macro(struct chat_parse *parse,
                                 struct chat_node **out)
{
    const struct chat_lex_word *begin = parse->word - 1, *name = parse->word;
    struct chat_node *parameters = NULL, **last = &parameters, *body = NULL;
    if (name->kind != CHAT_LEX_NAME)
        return chat_parse_refuse(parse, "a name");
    parse->word++;
    TRY(chat_parse_need(parse, "("));
    while (!chat_parse_take(parse, ")")) {
        const struct chat_lex_word *word = parse->word;
        struct chat_node *otherwise = NULL;
        if (word->kind != CHAT_LEX_NAME)
            return chat_parse_refuse(parse, "a name");
        parse->word++;
        if (chat_parse_take(parse, "="))
            TRY(chat_parse_expr_read(parse, &otherwise));
        TRY(chat_parse_make(parse, CHAT_NODE_ARGUMENT, word, otherwise, NULL,
                            last));
        last = &(*last)->next;
        if (!chat_lex_is(parse->word, CHAT_LEX_SIGN, ")"))
            TRY(chat_parse_need(parse, ","));
    }
    TRY(chat_parse_close(parse));
    TRY(chat_parse_body(parse, &body));
    TRY(chat_parse_make(parse, CHAT_NODE_MACRO, name, parameters, body, out));
    return chat_parse_end(parse, "endmacro", begin);
}

static enum err chat_parse_generation(struct chat_parse *parse,
                                      struct chat_node **out)
{
    const struct chat_lex_word *begin = parse->word - 1;
    struct chat_node *body = NULL;
    TRY(chat_parse_close(parse));
    TRY(chat_parse_body(parse, &body));
    TRY(chat_parse_make(parse, CHAT_NODE_GENERATION, begin, NULL, body, out));
    parse->tree->generation = true;
    return chat_parse_end(parse, "endgeneration", begin);
}

/* Behind {% */
static enum err chat_parse_block(struct chat_parse *parse,
                                 struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word;
    struct chat_node *value = NULL;
    if (chat_parse_take_name(parse, "if"))
        return chat_parse_if(parse, word, out);
    if (chat_parse_take_name(parse, "for"))
        return chat_parse_for(parse, out);
    if (chat_parse_take_name(parse, "set"))
        return chat_parse_set(parse, out);
    if (chat_parse_take_name(parse, "macro"))
        return chat_parse_macro(parse, out);
    if (chat_parse_take_name(parse, "generation"))
        return chat_parse_generation(parse, out);
    if (chat_parse_take_name(parse, "filter")) {
        TRY(chat_parse_capture(parse, word, "endfilter", true, &value));
        return chat_parse_make(parse, CHAT_NODE_PRINT, word, value, NULL, out);
    }
    bool on = chat_parse_take_name(parse, "continue");
    if (on || chat_parse_take_name(parse, "break")) {
        TRY(chat_parse_make(parse, CHAT_NODE_LEAVE, word, NULL, NULL, out));
        (*out)->value = on;
        return chat_parse_close(parse);
    }
    return err_set(ERR_DATA,
                   "line %d: the statement '%.*s' is not known here; "
                   "there are: for, if, set, macro, filter, generation, break, "
                   "continue",
                   word->line, word->bytes < 40 ? (int)word->bytes : 40,
                   word->text);
}

static enum err chat_parse_statement(struct chat_parse *parse,
                                     struct chat_node **out)
{
    const struct chat_lex_word *word = parse->word++;
    if (word->kind == CHAT_LEX_DATA)
        return chat_parse_make(parse, CHAT_NODE_DATA, word, NULL, NULL, out);
    if (word->kind != CHAT_LEX_PRINT)
        return chat_parse_block(parse, out);
    struct chat_node *value = NULL;
    TRY(chat_parse_expr_tuple(parse, true, &value));
    if (parse->word->kind != CHAT_LEX_PRINT_CLOSE)
        return chat_parse_refuse(parse, "'}}'");
    parse->word++;
    return chat_parse_make(parse, CHAT_NODE_PRINT, word, value, NULL, out);
}

/* Statements up to one that ends or divides a block, or the end. */
static enum err chat_parse_body(struct chat_parse *parse,
                                struct chat_node **out)
{
    static const char *const ends[] = { "elif",     "else",         "endif",
                                        "endfor",   "endset",       "endfilter",
                                        "endmacro", "endgeneration" };
    struct chat_node **last = out;
    *out = NULL;
    TRY(chat_parse_down(parse));
    for (;;) {
        const struct chat_lex_word *word = parse->word;
        bool end = word->kind == CHAT_LEX_END;
        for (size_t e = 0; e < sizeof ends / sizeof *ends; e++)
            end = end || (word->kind == CHAT_LEX_BLOCK &&
                          chat_lex_is(word + 1, CHAT_LEX_NAME, ends[e]));
        if (end)
            break;
        TRY(chat_parse_statement(parse, last));
        last = &(*last)->next;
    }
    parse->depth--;
    return ERR_OK;
}

enum err chat_parse_read(const char *text, size_t bytes, struct chat_tree *out)
{
    assert((text != NULL || bytes == 0) && out != NULL);
    enum err rc = ERR_OK;
    *out = (struct chat_tree){ .made = NULL };
    TRY(chat_lex_read(text, bytes, &out->lex));
    struct chat_parse parse = { out, out->lex.word, 0 };
    TRY_OUT(chat_parse_body(&parse, &out->body));
    if (parse.word->kind != CHAT_LEX_END) {
        parse.word++;
        rc =
            err_set(ERR_DATA, "line %d: '%.*s' without its beginning",
                    parse.word->line, (int)parse.word->bytes, parse.word->text);
    }
out:
    if (rc != ERR_OK)
        chat_parse_release(out);
    return rc;
}

void chat_parse_release(struct chat_tree *tree)
{
    while (tree->made != NULL) {
        struct chat_node *node = tree->made;
        tree->made = node->made;
        free(node);
    }
    chat_lex_release(&tree->lex);
    tree->body = NULL;
}
