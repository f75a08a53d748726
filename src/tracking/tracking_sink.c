/* The table of sinks, and what all of them are asked before a run starts.
 *
 * Sinks are a table, so that a new one is a row and a file: nobody who records
 * a figure and nobody who starts a run knows which there are. */
#include "src/tracking/tracking_sink.h"

#define TRACKING_SINK_ENTRY(name) &tracking_##name##_ops,
const struct tracking_sink_ops *const tracking_sinks[] = { TRACKING_SINKS(
    TRACKING_SINK_ENTRY) NULL };

bool tracking_wanted(const struct tracking_settings *settings)
{
    bool any = false;
    for (int i = 0; tracking_sinks[i] != NULL; i++)
        any = any || tracking_sinks[i]->wanted(settings);
    return any;
}

enum err tracking_check(const struct tracking_settings *settings)
{
    for (int i = 0; tracking_sinks[i] != NULL; i++)
        if (tracking_sinks[i]->check != NULL &&
            tracking_sinks[i]->wanted(settings))
            TRY(tracking_sinks[i]->check(settings));
    return ERR_OK;
}
