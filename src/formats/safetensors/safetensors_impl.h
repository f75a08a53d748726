/* What the parts of the safetensors reader share. */
#pragma once

#include "src/formats/safetensors/safetensors.h"

/* Adds the tensors of shard number `file`, which is open, unsorted. */
enum err safetensors_header_read(struct safetensors *set, int file);
