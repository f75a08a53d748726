/* The rows of what watches a run: monitors, the log, users' commands and plug-ins.
 * See train_settings_rows.h. */
#pragma once

#include "src/base/log.h"
#include "src/base/settings/settings_list.h"

#define MONITOR_SETTINGS(S)                                                    \
    S(monitor, DURATION, norms, "0ba", 0,                                      \
      "between L2 norms of each tensor's gradient, weight, update and "        \
      "moments, at logged steps; 0ba: none, as for all of these")              \
    S(monitor, DURATION, activations, "0ba", 0,                                \
      "between figures of what each block puts out: mean, standard "           \
      "deviation, largest magnitude, share of zeros")                          \
    S(monitor, DURATION, experts, "0ba", 0,                                    \
      "between figures of how each block's tokens spread over its experts")    \
    S(monitor, DURATION, system, "60sec", 0,                                   \
      "between figures of processors, memory, disk, network, GPUs and "        \
      "energy, of which the last step has some in any case (0ba: none)")       \
    S(monitor, DURATION, memory, "60sec", 0,                                   \
      "between figures of memory, planned by kind and taken")

#define LOG_SETTINGS(S)                                                        \
    S(log, INT(1, 1e6), interval, "1", 0,                                      \
      "steps between lines of metrics and progress",                           \
      .theirs = {                                                              \
          ALSO("logging_steps log_every log_freq console_log_interval") })     \
    S(log, CHOICE(log_level), level, "info", SETTING_LOCAL,                    \
      "what goes to stderr", .theirs = { ALSO("python_log_level") })

enum watch_straggler { WATCH_OFF, WATCH_WARN, WATCH_SWEEP, WATCH_REPLACE };
static const char *const watch_straggler_names[] = { "off", "warn", "sweep",
                                                     "replace", NULL };

#define WATCH_SETTINGS(S)                                                      \
    S(watch, CHOICE(watch_straggler), on_straggler, "warn", 0,                 \
      "when a rank is slower than the others by a tenth or more, or the run "  \
      "than it was, or samples are waited for; off: nobody looks; sweep: if "  \
      "a rank or the run's rate stays so, the run saves and all nodes of the " \
      "job are checked before it goes on; replace: the same for the rate, "    \
      "and a rank that stays so has a spare node take its node's place")       \
    S(watch, INT(4, 63), window, "20", 0,                                      \
      "steps of which three quarters must be slow")                            \
    S(watch, FLOAT(0, 1e6), cooldown_s, "1800", 0,                             \
      "seconds between two such checks or replacements")                       \
    S(watch, INT(1, 1000), replacements, "3", 0, "and at most in a job")

/* Each has an event in on_hooks.c. */
#define HOOK_COMMANDS(S)                                                       \
    S(hooks, STRING, on_fit_start, "", 0,                                      \
      "command that sh runs when training begins, with a line of JSON about "  \
      "it on its input; empty: none")                                          \
    S(hooks, STRING, on_epoch_start, "", 0, "and when an epoch begins")        \
    S(hooks, STRING, on_batch_end, "", 0,                                      \
      "and every hooks.interval, with the step's figures",                     \
      .theirs = { NOT_HERE(                                                    \
          "callbacks*",                                                        \
          "there are no callbacks to name: monitor.*, checkpoint.*, finish "   \
          "and hooks.* do what most are for, plugins the rest") })             \
    S(hooks, STRING, on_epoch_end, "", 0, "and when an epoch ends")            \
    S(hooks, STRING, on_eval_end, "", 0, "and after an evaluation")            \
    S(hooks, STRING, on_fit_end, "", 0, "and when training ends")
#define HOOK_SETTINGS(S)                                                       \
    HOOK_COMMANDS(S)                                                           \
    S(hooks, DURATION, interval, "100ba", 0,                                   \
      "between calls of hooks.on_batch_end, which the last step has in any "   \
      "case")                                                                  \
    S(hooks, FLOAT(0.1, 3600), timeout_s, "10", 0,                             \
      "seconds that such a command may take; they run beside training, one "   \
      "at a time; the end of a run waits so long for all that are left and "   \
      "again for the last one, but a quarter of parallel.timeout_s, and 5 s "  \
      "after a signal, at most")

/* The items of the list `plugins`. */
#define PLUGIN_SETTINGS(S)                                                     \
    S(plugin, PATH, path, NULL, 0, "the shared object")                        \
    S(plugin, STRING, options, "", 0,                                          \
      "for the plug-in, which says what it "                                   \
      "takes")

struct plugin_settings {
    PLUGIN_SETTINGS(SETTINGS_FIELD)
};

extern const struct settings_kind plugin_kinds[];
