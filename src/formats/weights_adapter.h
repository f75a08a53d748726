/* Adapters of a checkpoint in PEFT's format, which Hugging Face's peft loads
 * beside the base: adapter_model.safetensors (F32) with names
 * "base_model.model." MODULE ".lora_A.weight", and adapter_config.json.
 *
 * Where a module of theirs is several layers of ours (Wqkv, c_attn), its
 * adapter is theirs together: A one below the other, B in blocks, rank and
 * alpha as many times as large, by rank_pattern and alpha_pattern. */
#pragma once

#include "src/formats/weights.h"

/* The folder exists and has no such files. ERR_USAGE: the weights have no
 * adapters, or something else of the model has trained, too, which an adapter's
 * file cannot hold; ERR_UNSUPPORTED: no architecture of theirs is the model's. */
enum err weights_adapter_export(struct weights *weights, const char *folder);
