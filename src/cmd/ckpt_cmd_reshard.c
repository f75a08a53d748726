/* tessera-ckpt reshard: the same checkpoint in another number of shards
 * (checkpoint/tools/ckpt_reshard.c). */
#include <assert.h>
#include <stdio.h>

#include "checkpoint/tools/ckpt_tools.h"
#include "src/base/clean.h"
#include "src/base/jsontext.h"
#include "src/base/units.h"
#include "src/cmd/ckpt_cmd.h"

enum err ckpt_cmd_reshard(const struct ckpt_cmd *cmd, int *exit_code)
{
    assert(cmd->paths[1] != NULL && cmd->ranks > 0);
    int64_t bytes;
    char size[32];
    (void)exit_code;
    TRY(ckpt_reshard(cmd->paths[0], cmd->paths[1], (int)cmd->ranks, &bytes));
    if (cmd->json)
        return ckpt_cmd_print(json_pack(
            "{s:o, s:I, s:I}", "path", jsontext_string(cmd->paths[1]), "ranks",
            (json_int_t)cmd->ranks, "bytes", (json_int_t)bytes));
    units_bytes((double)bytes, size, sizeof size);
    clean_printf("%s: %s for %d ranks\n", cmd->paths[1], size, (int)cmd->ranks);
    return ERR_OK;
}
