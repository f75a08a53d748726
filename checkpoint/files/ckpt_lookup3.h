/* The checksum of HDF5's own metadata. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Bob Jenkins' lookup3 of bytes, hashlittle() with an initial value of 0:
 * http://burtleburtle.net/bob/c/lookup3.c. */
uint32_t ckpt_lookup3(const unsigned char *data, size_t bytes);
