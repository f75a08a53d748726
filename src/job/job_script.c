/* Text alone: what is asked of Slurm and of the run is decided by the caller. */
#include "src/job/job_script.h"

#include <assert.h>
#include <string.h>

#include "src/base/clean.h"
#include "src/base/fsio.h"

#define COMMENT_COLUMN 36

/* A word for sbatch's own reading of its lines, which knows quotes. */
static void directive(FILE *out, const char *option, const char *value,
                      const char *comment)
{
    bool quoted = value[strcspn(value, " \t#\"'\\")] != '\0';
    const char *mark = strchr(value, '"') != NULL ? "'" : "\"";
    int wide = fprintf(out, "#SBATCH --%s=%s%s%s", option, quoted ? mark : "",
                       value, quoted ? mark : "");
    if (comment != NULL)
        fprintf(out, "%*s# %s",
                wide < COMMENT_COLUMN ? COMMENT_COLUMN - wide : 1, "", comment);
    putc('\n', out);
}

static void directive_count(FILE *out, const char *option, int count,
                            const char *comment)
{
    char text[16];
    snprintf(text, sizeof text, "%d", count);
    directive(out, option, text, comment);
}

static void directive_given(FILE *out, const char *option, const char *value)
{
    if (value != NULL)
        directive(out, option, value, NULL);
}

static void write_nodes(const struct job_script *script, FILE *out)
{
    char comment[64];
    snprintf(comment, sizeof comment, "%d to train on, %d in reserve",
             script->nodes, script->spares);
    directive_count(out, "nodes", script->nodes + script->spares,
                    script->spares > 0 ? comment : NULL);
    directive_count(out, "ntasks-per-node", script->ranks,
                    script->kept ? "ranks of a node" : NULL);
    if (script->gpus > 0)
        directive_count(out, "gpus-per-node", script->gpus, NULL);
}

/* What lets a run go on: time for a checkpoint before the end, and the job again. */
static void write_kept(const struct job_script *script, FILE *out)
{
    directive(out, "signal", "B:USR1@300", "a checkpoint, then the job again");
    fputs("#SBATCH --no-kill\n#SBATCH --open-mode=append\n", out);
    if (script->requeue)
        fputs("#SBATCH --requeue\n", out);
    else
        directive(out, "dependency", "singleton",
                  "no requeue here: one job after another");
}

static void write_words(char *const *words, FILE *out)
{
    for (; *words != NULL; words++) {
        char quoted[CLEAN_QUOTED_BYTES(FSIO_PATH_MAX)];
        clean_quote(*words, quoted, sizeof quoted);
        fprintf(out, " %s", quoted);
    }
    putc('\n', out);
}

static enum err check(const struct job_script *script)
{
    const char *texts[] = { script->name,      script->folder, script->output,
                            script->time,      script->module, script->programs,
                            script->partition, script->account };
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++)
        if (texts[i] != NULL && strpbrk(texts[i], "\r\n") != NULL)
            return err_set(ERR_USAGE, "'%s' has a line end", texts[i]);
    for (int i = 0; script->options[i] != NULL; i++)
        if (strpbrk(script->options[i], "\r\n") != NULL)
            return err_set(ERR_USAGE, "'%s' has a line end",
                           script->options[i]);
    for (int i = 0; script->command[i] != NULL; i++)
        if (strlen(script->command[i]) >= FSIO_PATH_MAX)
            return err_set(ERR_USAGE, "'%.40s...' is too long",
                           script->command[i]);
    return ERR_OK;
}

enum err job_script_write(const struct job_script *script, FILE *out)
{
    char quoted[CLEAN_QUOTED_BYTES(FSIO_PATH_MAX)];
    assert(script->nodes > 0 && script->spares >= 0 && script->ranks > 0);
    TRY(check(script));
    fprintf(out, "#!/bin/bash -l\n# Made by tessera submit " TESSERA_VERSION
                 ". Yours to change: sbatch takes it as it is.\n\n");
    directive(out, "job-name", script->name, NULL);
    write_nodes(script, out);
    directive_given(out, "partition", script->partition);
    directive_given(out, "account", script->account);
    directive_given(out, "time", script->time);
    directive(out, "chdir", script->folder, NULL);
    directive(out, "output", script->output, NULL);
    if (script->kept)
        write_kept(script, out);
    for (int i = 0; script->options[i] != NULL; i++)
        fprintf(out, "#SBATCH %s\n", script->options[i]);
    putc('\n', out);
    if (script->kept)
        fprintf(out,
                "export TESSERA_SPARES=%d\n"
                "# the signal may come while a module is loaded\n"
                "trap 'export TESSERA_STOP=USR1' USR1\n",
                script->spares);
    if (script->module != NULL) {
        clean_quote(script->module, quoted, sizeof quoted);
        fprintf(out, "module unload tessera 2>/dev/null\nmodule load %s\n",
                quoted);
    } else {
        clean_quote(script->programs, quoted, sizeof quoted);
        fprintf(out, "export PATH=%s:$PATH\n", quoted);
    }
    fputs("exec", out);
    write_words(script->command, out);
    return ERR_OK;
}
