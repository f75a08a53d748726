/* Expressions of a chat template, and what reading its statements shares with
 * reading them. */
#pragma once

#include <stdbool.h>

#include "src/base/err.h"
#include "src/text/chat/chat_parse.h"

struct chat_parse {
    struct chat_tree *tree;
    const struct chat_lex_word *word; /* the next one */
    int depth;                        /* of what is being read */
};

/* An expression; without an if-else of its own. */
enum err chat_parse_expr_read(struct chat_parse *parse, struct chat_node **out);
enum err chat_parse_expr_or(struct chat_parse *parse, struct chat_node **out);
/* One value, or several with commas between, a tuple. condition: each may have
 * an if-else. */
enum err chat_parse_expr_tuple(struct chat_parse *parse, bool condition,
                               struct chat_node **out);
/* name(..) | name(..), filters of *out. */
enum err chat_parse_expr_filters(struct chat_parse *parse,
                                 struct chat_node **out);

/* Whether the next word is this sign or name. */
static inline bool chat_parse_sees(const struct chat_parse *parse,
                                   const char *sign)
{
    return chat_lex_is(parse->word, CHAT_LEX_SIGN, sign);
}

static inline bool chat_parse_sees_name(const struct chat_parse *parse,
                                        const char *name)
{
    return chat_lex_is(parse->word, CHAT_LEX_NAME, name);
}

/* ..., which then is read. */
bool chat_parse_take(struct chat_parse *parse, const char *sign);
bool chat_parse_take_name(struct chat_parse *parse, const char *name);
/* The same, and ERR_DATA if it is another one. */
enum err chat_parse_need(struct chat_parse *parse, const char *sign);
/* ERR_DATA: the next word, where `want` should follow. */
enum err chat_parse_refuse(const struct chat_parse *parse, const char *want);

/* How deep the deepest tree of a list is. */
int chat_parse_depth(const struct chat_node *node);
/* A node over a and b, at the line of `word`, with its text. */
enum err chat_parse_make(struct chat_parse *parse, enum chat_node_kind kind,
                         const struct chat_lex_word *word, struct chat_node *a,
                         struct chat_node *b, struct chat_node **out);
/* Down a level of brackets or blocks, which the stack has to hold. */
enum err chat_parse_down(struct chat_parse *parse);
