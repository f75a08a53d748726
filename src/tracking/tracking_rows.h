/* Trackers as rows: the settings tracking.*, and the sinks that are asked in turn
 * whether they are wanted. A new tracker is its settings and its sink here, and
 * its file (tracking_sink.h). */
#pragma once

#include "src/base/settings/settings.h"

#define TRACKING_SETTINGS(S)                                                   \
    S(tracking, BOOL, tensorboard, "false", 0,                                 \
      "all metrics, and samples, as TensorBoard's event files in the run "     \
      "directory's tensorboard",                                               \
      .theirs = {                                                              \
          NOT_HERE("loggers.wandb* wandb*",                                    \
                   "nothing is sent to Weights & Biases: use "                 \
                   "tracking.mlflow or tracking.tensorboard; behind the run "  \
                   "wandb_offline.py makes one for wandb sync (Trackers)"),    \
          NOT_HERE("tracking.csv",                                             \
                   "no table is written beside metrics.jsonl; jq makes one "   \
                   "of it (tessera-train(1), Trackers)"),                      \
          THEIRS("report_to",                                                  \
                 "true; or tracking.mlflow, tracking.prometheus; "             \
                 "Weights & Biases is not here"),                              \
          THEIRS("loggers*",                                                   \
                 "true; or tracking.mlflow, tracking.prometheus") })           \
    S(tracking, PATH, prometheus, "", 0,                                       \
      "file with the newest metrics for node_exporter's textfile collector, "  \
      "NAME.prom; empty: none")                                                \
    S(tracking, PATH, mlflow, "", SETTING_ADDRESS,                             \
      "all metrics and the settings to MLflow: http(s)://HOST:PORT, a "        \
      "folder or file:///FOLDER; empty: none")                                 \
    S(tracking, STRING, experiment, "tessera", 0,                              \
      "of MLflow, made where there is none of this name")                      \
    S(tracking, STRING, mlflow_register, "", 0,                                \
      "a model of MLflow's registry, of which the checkpoint of a run that "   \
      "has finished becomes a version: with checkpoint.keep_best the best, "   \
      "else the last; empty: none")                                            \
    S(tracking, STRING, run_name, "", 0,                                       \
      "of MLflow's run, and a label of Prometheus' metrics; empty: the run "   \
      "directory's name")                                                      \
    S(tracking, INT(1, 65536), queue, "1024", 0,                               \
      "logged steps that wait for each of these at most; the oldest are "      \
      "left out then")                                                         \
    S(tracking, FLOAT(0, 3600), finish_s, "10", 0,                             \
      "seconds that the end of a run waits for them at most")

/* tracking_NAME_ops, in tracking_NAME.c. */
#define TRACKING_SINKS(X)                                                      \
    X(tensorboard) X(prometheus) X(mlflow_file) X(mlflow_rest)

struct tracking_settings {
    TRACKING_SETTINGS(SETTINGS_FIELD)
};
