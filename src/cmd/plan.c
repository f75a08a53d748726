/* tessera-plan [CFG] [key=value ...]: what a run would need and how long it
 * would take, before anything is queued. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/kernels.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/cmd/plan_print.h"
#include "src/job/exit_code.h"
#include "src/train/start/start_idle.h"
#include "src/train/start/start_weights.h"

static const char usage[] =
    "usage: tessera-plan [CFG] [key=value ...] [OPTION ...]\n"
    "       tessera-plan --list | --help | --version\n\n"
    "Says what a training run would need: parameters, FLOPs per token, memory "
    "of a rank\nby kind, batch arithmetic, data, disk, and with what the "
    "options tell, time,\ncheckpoint interval and goodput. The settings are "
    "those of tessera-train; one such\nas model.preset=mpt-7b is enough.\n\n"
    "  --memory BYTES        memory of a rank: 80GiB; does it fit?\n"
    "  --ranks N             ranks of the job (1)\n"
    "  --nodes N             nodes of the job (1)\n"
    "  --rate N              tokens per second of the job\n"
    "  --mfu SHARE           or the share of ranks x hardware.peak_flops\n"
    "  --mtbf HOURS          mean time between failures of one node\n"
    "  --write-rate BYTES    of checkpoints, per second: 2GiB\n"
    "  --json                one JSON object\n"
    "  --list                the presets\n\n"
    "exit codes: 0 it fits, or no memory was given; 93 it does not fit; 64 "
    "usage or\nconfiguration\n";

static void list_presets(void)
{
    for (int i = 0; i < model_preset_weights; i++)
        puts(model_preset_names[i]);
}

static enum err plan(int argc, char **argv, int *exit_code)
{
    enum err rc = ERR_OK;
    struct plan_options options;
    struct train_settings *settings = NULL;
    struct plan_figures *figures = NULL;
    TRY_OUT(new_zeroed(&settings, 1));
    TRY_OUT(new_zeroed(&figures, 1));
    TRY_OUT(plan_options_parse(argc, argv, &options));
    TRY_OUT(train_settings_load_partial(options.path, options.overrides,
                                        options.override_count, settings));
    TRY_OUT(start_weights_plan(settings));
    start_idle(&(struct start_idle){ .settings = settings }, NULL, NULL);
    /* a job may have more ranks than the slots of a batch that is not known */
    if (settings->train.global_batch == 0 &&
        settings->parallel.slots < options.ranks)
        settings->parallel.slots = options.ranks;
    TRY_OUT(plan_figures(&options, settings, figures));
    if (options.json)
        TRY_OUT(plan_print_json(figures));
    else
        plan_print(figures);
    if (figures->limit_bytes > 0 && !figures->fits)
        *exit_code = EXIT_STOP;
out:
    if (figures != NULL)
        plan_figures_release(figures);
    free(figures);
    free(settings);
    return rc;
}

int main(int argc, char **argv)
{
    int exit_code = EXIT_DONE;
    kernels_wait_passively(argv);
    log_init("plan", -1, LOG_INFO);
    if (argc == 2 && strcmp(argv[1], "--help") == 0) {
        fputs(usage, stdout);
    } else if (argc == 2 && strcmp(argv[1], "--version") == 0) {
        puts("tessera " TESSERA_VERSION);
    } else if (argc == 2 && strcmp(argv[1], "--list") == 0) {
        list_presets();
    } else if (argc < 2) {
        fputs(usage, stderr);
        return EXIT_USAGE;
    } else {
        enum err rc = plan(argc, argv, &exit_code);
        if (rc == ERR_OK && (fflush(stdout) != 0 || ferror(stdout)))
            rc = err_errno("standard output");
        if (rc != ERR_OK) {
            fprintf(stderr, "tessera-plan: %s\n", err_text());
            return err_exit_code(rc);
        }
    }
    return exit_code;
}
