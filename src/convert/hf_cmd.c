/* What the commands of tessera-hf share. */
#include "src/convert/hf_cmd.h"

#include "src/job/stop.h"

const char *const hf_cmd_dtypes[] = { "fp32", "bf16", "fp16", "q8_0", NULL };
const char *const hf_cmd_torch_dtypes[] = { "float32", "bfloat16", "float16",
                                            "q8_0" };

enum err hf_poll(void)
{
    return stop_requested() == 0
               ? ERR_OK
               : err_set(ERR_IO, "interrupted: what was begun is removed");
}
