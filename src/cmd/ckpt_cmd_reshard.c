/* tessera-ckpt reshard: the same checkpoint in another number of shards
 * (checkpoint/tools/ckpt_reshard.c); average: the mean of several; view: its file
 * checkpoint.h5 again.
 *
 * Training needs neither: it loads a checkpoint of any number of shards on any
 * number of ranks. reshard is for people who hand checkpoints on, one file instead
 * of a thousand, and view for programs that know HDF5 and nothing of shards. */
#include <assert.h>

#include "checkpoint/files/ckpt_view.h"
#include "checkpoint/tools/ckpt_tools.h"
#include "src/base/clean.h"
#include "src/base/jsontext.h"
#include "src/base/units.h"
#include "src/cmd/ckpt_cmd.h"
#include "src/convert/hf_cmd.h"

enum err ckpt_cmd_reshard(struct ckpt_cmd *cmd)
{
    assert(cmd->paths[1] != NULL && cmd->ranks > 0 &&
           cmd->ranks <= CKPT_RESHARD_RANKS_MAX);
    int64_t bytes;
    TRY(ckpt_reshard(cmd->paths[0], cmd->paths[1], (int)cmd->ranks, &bytes));
    if (cmd->json)
        return ckpt_cmd_print(json_pack(
            "{s:o, s:I, s:I}", "path", jsontext_string(cmd->paths[1]), "ranks",
            (json_int_t)cmd->ranks, "bytes", (json_int_t)bytes));
    clean_printf("%s: %s for %d ranks\n", cmd->paths[1], UNITS_BYTES(bytes),
                 (int)cmd->ranks);
    return ERR_OK;
}

enum err ckpt_cmd_average(struct ckpt_cmd *cmd)
{
    TRY(hf_average(cmd->paths[0], cmd->words, cmd->word_count));
    if (cmd->json)
        return ckpt_cmd_print(json_pack("{s:o, s:i}", "path",
                                        jsontext_string(cmd->paths[0]),
                                        "models", cmd->word_count));
    clean_printf("%s: the mean of %d\n", cmd->paths[0], cmd->word_count);
    return ERR_OK;
}

/* The view is made of the manifest and names shards that are there, so its bytes
 * can be made again at any time. */
enum err ckpt_cmd_view(struct ckpt_cmd *cmd)
{
    enum err rc = ERR_OK;
    struct ckpt_manifest *manifest = NULL;
    struct ckpt_view view;
    const char *path = cmd->paths[0];
    TRY_OUT(ckpt_manifest_read(path, NULL, NULL, &manifest));
    TRY_OUT(ckpt_view_mend(path, manifest, &view));
    if (cmd->json)
        TRY_OUT(ckpt_cmd_print(
            json_pack("{s:o, s:s, s:I}", "path", jsontext_string(path), "file",
                      CKPT_VIEW_FILE, "bytes", (json_int_t)view.bytes)));
    else
        clean_printf("%s/%s: written\n", path, CKPT_VIEW_FILE);
out:
    ckpt_manifest_destroy(manifest);
    return rc;
}
