/* A conversation and its tokens. What was said keeps its tokens, an answer
 * those that the model gave it, so that a turn only adds to them and nothing
 * that the model has read is computed again; only where a template tells the
 * past in other words all of it is encoded anew. */
#pragma once

#include "src/base/err.h"
#include "src/generate/generate_engine.h"
#include "src/infer/generate.h"

struct chat_talk;

/* The engine is borrowed; with its --system message where there is one. */
enum err chat_talk_create(struct generate_engine *engine,
                          struct chat_talk **out);
void chat_talk_destroy(struct chat_talk *talk);

/* The user says something; *prompt, lent, is all tokens up to the answer.
 * ERR_USAGE: the context is full; ERR_DATA: the template cannot take it. Then
 * it was not said. */
enum err chat_talk_say(struct chat_talk *talk, const char *text, size_t bytes,
                       struct generate_prompt *prompt);
enum err chat_talk_answer(struct chat_talk *talk,
                          const struct generate_result *result);

/* Back to the beginning. */
enum err chat_talk_reset(struct chat_talk *talk);
/* Appends the conversation to a file, as a line of JSON that tessera-data
 * tokenize --chat reads; what has no answer is left out. ERR_USAGE: nothing
 * has. */
enum err chat_talk_save(const struct chat_talk *talk, const char *path);
