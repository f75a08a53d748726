/* Small tasks of each kind, and the bytes as tokens. */
#pragma once

#include "src/eval/icl_set.h"
#include "tests/data_fixture.h"
#include "tests/quotes.h"

#define NEED fixture_need

static const char *folder;
static struct tokenizer *tokenizer;

static const char language[] =
    "{'context': ' A ', 'continuation': 'B\\n'}\n"
    "{'context': 'C', 'continuation': 'D', 'more': [1]}\n"
    "{'context': 'E', 'continuation': 'F'}\n";
static const char choices[] =
    "{'query': 'Q1 ', 'choices': ['x', ' y '], 'gold': 1}\n"
    "{'query': 'Q2', 'choices': ['u', 'v', 'w'], 'gold': 0}\n";
static const char schema[] =
    "{'context_options': ['he ', 'she'], 'continuation': ' goes.', 'gold': 1}\n"
    "{'context_options': ['it', 'I'], 'continuation': 'go.', 'gold': 0}\n";
static const char thoughts[] =
    "{'context': '1+1', 'chain_of_thought': 'add ', 'answer': '2'}\n"
    "{'context': '2+2', 'chain_of_thought': 'twice', 'answer': '4', 'aliases': "
    "['four']}\n";

/* The lines have ' for ". */
static inline const char *write_task(const char *name, const char *lines)
{
    const char *path = fixture_path(folder, name);
    fixture_write_file(path, quoted(lines), strlen(lines));
    return path;
}

/* A task of this kind, all else as usual, and its set. */
static inline enum err icl_fixture_set(struct icl_task *task,
                                       enum icl_kind kind, const char *file,
                                       struct icl_set **set)
{
    const struct icl_set_options options = { .positions = 64 };
    icl_task_default(task);
    task->kind = kind;
    task->file = file;
    *set = NULL;
    return icl_set_create(task, 1, tokenizer, &options, NULL, set);
}

static inline void icl_fixture_begin(void)
{
    folder = tap_folder();
    NEED(tokenizer_create("bytes", &tokenizer));
}

static inline int icl_fixture_end(void)
{
    tokenizer_destroy(tokenizer);
    return tap_done();
}
