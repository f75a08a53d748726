/* Makes the tokenizer_config.json of all tokenizers that are written here. */
#include "src/text/tokenizer/tokenizer_config.h"

json_t *tokenizer_config_make(json_t *bos, json_t *eos, json_t *pad)
{
    if (pad == NULL)
        pad = json_incref(eos);
    return json_pack("{s:s, s:[s, s], s:s, s:b, s:o*, s:o*, s:o*}",
                     "tokenizer_class", "PreTrainedTokenizerFast",
                     "model_input_names", "input_ids", "attention_mask",
                     "padding_side", "left", "clean_up_tokenization_spaces", 0,
                     "bos_token", bos, "eos_token", eos, "pad_token", pad);
}
