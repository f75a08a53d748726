/* Options of in-context tasks. */
#include "src/eval/icl_task.h"

#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void icl_task_default(struct icl_task *task)
{
    *task = (struct icl_task){
        .label = "",
        .file = "",
        .seed = 1234,
        .prompt_string = "",
        .prelimiter = "",
        .example_delimiter = "\n",
        .continuation_delimiter = " ",
        .strip = true,
        .cot_delimiter = "",
        .normalize = true,
    };
}

enum err icl_task_kind(const char *name, enum icl_kind *kind)
{
    for (int k = 0; icl_kind_names[k] != NULL; k++)
        if (strcmp(name, icl_kind_names[k]) == 0) {
            *kind = (enum icl_kind)k;
            return ERR_OK;
        }
    if (strcmp(name, "code_evaluation") == 0)
        return err_set(ERR_UNSUPPORTED,
                       "code_evaluation runs programs that a model wrote, "
                       "which is not done here");
    return err_set(ERR_USAGE,
                   "no kind of task is called '%s': language_modeling, "
                   "multiple_choice, schema, generation_task_with_answers",
                   name);
}

enum err icl_task_parse(char *text, struct icl_task *task)
{
    char *file = strchr(text, ':');
    char *last, *end;
    if (file == NULL || file[1] == '\0' || file[1] == ':')
        return err_set(ERR_USAGE,
                       "a task is KIND:FILE or KIND:FILE:SHOTS, not '%s'",
                       text);
    *file++ = '\0';
    TRY(icl_task_kind(text, &task->kind));
    last = strrchr(file, ':');
    task->file = file;
    /* a file's name may have a colon */
    if (last == NULL || last[1] == '\0' ||
        last[1 + strspn(last + 1, "0123456789")] != '\0')
        return ERR_OK;
    errno = 0;
    task->shots = strtoll(last + 1, &end, 10);
    if (errno != 0 || task->shots > ICL_SHOTS_MAX)
        return err_set(ERR_USAGE, "a task has at most %d shots, not %s",
                       ICL_SHOTS_MAX, last + 1);
    *last = '\0';
    return ERR_OK;
}

void icl_task_name(const struct icl_task *task, char *name, size_t bytes)
{
    const char *slash = strrchr(task->file, '/');
    const char *stem = slash != NULL ? slash + 1 : task->file;
    size_t length = strcspn(stem, ".");
    assert(bytes > 0);
    if (task->label[0] != '\0')
        snprintf(name, bytes, "%s", task->label);
    else
        snprintf(name, bytes, "%.*s", (int)(length > 0 ? length : strlen(stem)),
                 stem);
}
