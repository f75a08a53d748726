/* training.md: the tables of events, listeners, algorithms, optimizers, schedules and
 * rules from the tables that the program itself goes by.
 *
 * A page that is written by hand lacks what was added last. Here each table of the
 * page is a loop over the rows that the training loop, the settings and the kernels
 * are made of, in their order, which is also the order in which they work. `make
 * reference` writes it, and a test compares the two: who adds a row has to run it. Only sentences between the tables stand here. What
 * text a row has goes through reference_cell(), as a bar in it would end the cell. */
#include <stdio.h>
#include <string.h>

#include "src/parallel/optimizer/optimizer.h"
#include "src/train/run/events.h"
#include "src/train/settings/schedule.h"
#include "src/train/settings/train_settings.h"

/* A bar would end the cell. */
static void reference_cell(FILE *out, const char *text)
{
    for (const char *p = text; *p != '\0'; p++)
        fprintf(out, *p == '|' ? "\\%c" : "%c", *p);
}

static void events(FILE *out)
{
    fputs("## Events\n\nIn the order in which they come. Listeners, plug-ins "
          "and `hooks.on_*` hear of them.\n\n| event | when |\n|---|---|\n",
          out);
    for (int i = 0; i < EVENT_COUNT; i++)
        fprintf(out, "| `%s` | %s |\n", events_name((enum event)i),
                events_about((enum event)i));
}

static void reference_listeners(FILE *out)
{
    static const char *const places[] = {
        [LISTEN_RANK_0] = "rank 0",
        [LISTEN_EACH_RANK] = "each rank",
        [LISTEN_TOGETHER] = "all ranks together",
    };
    const struct listener *row;
    fputs("\n## Listeners\n\nIn the order in which they are called.\n\n"
          "| listener | what | where | events |\n|---|---|---|---|\n",
          out);
    for (int i = 0; (row = events_listener(i)) != NULL; i++) {
        const uint32_t all = EVENT_BIT(EVENT_COUNT) - 1;
        fprintf(out, "| %s | %s | %s | ", row->name, row->about,
                places[row->place]);
        if (row->events == all)
            fputs("all", out);
        for (int e = 0, some = 0; e < EVENT_COUNT && row->events != all; e++)
            if ((row->events & EVENT_BIT(e)) != 0)
                fprintf(out, "%s%s", some++ > 0 ? ", " : "",
                        events_name((enum event)e));
        fputs(" |\n", out);
    }
}

/* "NUMBER, default 3", without a key. */
static void reference_member(FILE *out, const struct setting *setting)
{
    fprintf(out, "`%s`", setting->key);
    if (setting->names != NULL) {
        fputs(" (", out);
        for (const char *const *name = setting->names; *name != NULL; name++)
            fprintf(out, "%s%s", name == setting->names ? "" : ", ", *name);
        fputc(')', out);
    }
    if (setting->preset == NULL)
        fputs(", required", out);
    else if (setting->preset[0] != '\0')
        fprintf(out, ", default %s", setting->preset);
    fputs(": ", out);
    reference_cell(out, setting->help);
}

static void kinds(FILE *out, const char *key)
{
    const struct setting *setting = train_settings_setting(key);
    for (const struct settings_kind *kind = setting->kinds; kind->help != NULL;
         kind++) {
        fprintf(out, "| `%s` | ", kind->name != NULL ? kind->name : key);
        reference_cell(out, kind->help);
        fputs(" | ", out);
        for (int i = 0; i < kind->count; i++) {
            fputs(i > 0 ? "<br>" : "", out);
            reference_member(out, &kind->schema[i]);
        }
        fputs(" |\n", out);
    }
}

static void reference_algorithms(FILE *out)
{
    static const struct {
        const char *name, *key;
    } options[] = {
        { "alibi", "model.positions" },
        { "gated_linear_units", "model.ffn" },
        { "low_precision_norm", "model.norm" },
    };
    fputs(
        "\n## Algorithms\n\n`algorithms = ( { name = \"ema\"; ... }, ... );`, "
        "in the order in which they are to work.\n\n"
        "| algorithm | what | settings |\n|---|---|---|\n",
        out);
    kinds(out, "algorithms");
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) {
        fprintf(out, "| %s | a model option | ", options[i].name);
        reference_member(out, train_settings_setting(options[i].key));
        fputs(" |\n", out);
    }
}

static void reference_optimizers(FILE *out)
{
    const struct optimizer_ops *ops;
    fputs("\n## Optimizers\n\n`optimizer.name`, or of some tensors "
          "`optimizer.groups`. All have `lr` and `weight_decay`.\n\n"
          "| optimizer | keeps of a weight or tensor | decay in a step | "
          "settings besides |\n|---|---|---|---|\n",
          out);
    for (int i = 0; (ops = optimizer_at(i)) != NULL; i++) {
        fprintf(out, "| `%s` | ", ops->name);
        for (int m = 0; m < optimizer_moments(ops); m++)
            fprintf(out, "%s%s", m > 0 ? ", " : "", ops->moments[m]);
        for (int s = 0; s < optimizer_states(ops); s++)
            fprintf(out, "%s%s", s + optimizer_moments(ops) > 0 ? ", " : "",
                    ops->states[s]);
        fprintf(out, " | %s | %s%s%s |\n",
                ops->decay_by_lr ? "lr * weight_decay"
                                 : "lr / peak lr * weight_decay",
                ops->uses, ops->whole_tensors ? "; whole tensors" : "",
                ops->other != NULL ? ", the others by another" : "");
    }
    fputs("\nGroups, of which the first that matches counts:\n\n"
          "| setting | what | members |\n|---|---|---|\n",
          out);
    kinds(out, "optimizer.groups");
}

static void reference_schedules(FILE *out)
{
#define ROW(NAME, name, formula, uses) { #name, formula, uses },
    static const struct {
        const char *name, *formula, *uses;
    } table[] = { SCHEDULES(ROW) };
    fputs(
        "\n## Schedules\n\n`scheduler.name`: the multiplier of the peak rate. "
        "All begin with a linear `scheduler.warmup` of W steps; then, with T = "
        "t_max, tau = (t - W) / (T - W), at most 1, and n = t - W:\n\n"
        "| schedule | multiplier | settings |\n|---|---|---|\n",
        out);
    for (size_t i = 0; i < sizeof table / sizeof table[0]; i++)
        fprintf(out, "| `%s` | %s | %s |\n", table[i].name, table[i].formula,
                table[i].uses);
}

/* The settings of a group. */
static void reference_group(FILE *out, const char *title, const char *prefix)
{
    fprintf(out, "\n## %s\n\n| setting | what |\n|---|---|\n", title);
    for (int i = 0; i < train_settings_count; i++) {
        const struct setting *setting = &train_settings_schema[i];
        if (strncmp(setting->key, prefix, strlen(prefix)) != 0)
            continue;
        fprintf(out, "| `%s`, default %s | ", setting->key,
                setting->preset != NULL && setting->preset[0] != '\0'
                    ? setting->preset
                    : "empty");
        reference_cell(out, setting->help);
        fputs(" |\n", out);
    }
}

int main(void)
{
    FILE *out = stdout;
    fputs("# What a training run can do\n\nMade by `make reference` from the "
          "tables of the code. tessera-train(1) has all settings, "
          "src/train/extend/tessera_plugin.h what a plug-in can hear and ask "
          "for.\n\n",
          out);
    events(out);
    reference_listeners(out);
    reference_algorithms(out);
    reference_optimizers(out);
    reference_schedules(out);
    fputs("\n## Rules that end a run\n\n`finish = ( { name = \"early_stop\"; "
          "... }, ... );`\n\n| rule | what | settings |\n|---|---|---|\n",
          out);
    kinds(out, "finish");
    reference_group(out, "Commands", "hooks.");
    reference_group(out, "Trackers", "tracking.");
    return 0;
}
