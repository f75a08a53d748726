/* The bytes of an HDF5 file, put together in memory without the HDF5 library:
 * the library's latest format (HDF5 File Format Specification 3.0) as far as
 * checkpoint.h5 needs it, in what version 1.10 reads: superblock 3, object
 * headers 2, global heaps, attributes in the header of their object. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/dtype.h"

/* Zeroed at first. `data` is the owner's to free. */
struct ckpt_h5 {
    unsigned char *data;
    size_t bytes, room;
    bool failed; /* no memory: nothing more is put */
    size_t heap; /* where the open collection begins, 0: none */
    unsigned heap_objects;
};

#define CKPT_H5_UNDEFINED UINT64_MAX

enum ckpt_h5_message {
    CKPT_H5_DATASPACE = 1,
    CKPT_H5_LINK_INFO = 2,
    CKPT_H5_DATATYPE = 3,
    CKPT_H5_FILL = 5,
    CKPT_H5_LINK = 6,
    CKPT_H5_LAYOUT = 8,
    CKPT_H5_GROUP_INFO = 10,
    CKPT_H5_ATTRIBUTE = 12
};
enum { CKPT_H5_CONSTANT = 1 }; /* a message's flag */

void ckpt_h5_put(struct ckpt_h5 *file, const void *data, size_t bytes);
void ckpt_h5_number(struct ckpt_h5 *file, uint64_t value, size_t bytes);
void ckpt_h5_zeros(struct ckpt_h5 *file, size_t bytes);
/* Overwrite what was put. */
void ckpt_h5_set(struct ckpt_h5 *file, size_t at, uint64_t value, size_t bytes);
/* Append the checksum of all bytes from `begin` on. */
void ckpt_h5_checksum(struct ckpt_h5 *file, size_t begin);

/* --- the heap: objects of any length, before the headers that point at them
 * A collection of objects is in one piece: nothing else may be put between the
 * first object and ckpt_h5_heap_end(). */
struct ckpt_h5_object {
    size_t heap; /* where its collection is; 0: there is none */
    unsigned index;
    size_t begin, bytes;
};
struct ckpt_h5_object ckpt_h5_object_begin(struct ckpt_h5 *file);
void ckpt_h5_object_end(struct ckpt_h5 *file, struct ckpt_h5_object *object);
void ckpt_h5_heap_end(struct ckpt_h5 *file);

/* --- object headers --- */
size_t ckpt_h5_header_begin(struct ckpt_h5 *file);
void ckpt_h5_header_end(struct ckpt_h5 *file, size_t at);
void ckpt_h5_message(struct ckpt_h5 *file, enum ckpt_h5_message kind,
                     size_t bytes, unsigned flags);
void ckpt_h5_datatype(struct ckpt_h5 *file, enum dtype dtype);
/* What a reader gets where nothing is stored: NaN, and the least number of
 * integers, which have none. */
void ckpt_h5_fill(struct ckpt_h5 *file, enum dtype dtype);
void ckpt_h5_link(struct ckpt_h5 *file, const char *name, size_t length,
                  uint64_t address);

/* --- attributes: messages of an object header --- */
void ckpt_h5_attribute_integer(struct ckpt_h5 *file, const char *name,
                               int64_t value);
void ckpt_h5_attribute_real(struct ckpt_h5 *file, const char *name,
                            double value);
/* As h5py writes it. */
void ckpt_h5_attribute_boolean(struct ckpt_h5 *file, const char *name,
                               bool value);
/* UTF-8 of any length, whose bytes are objects of the heap. count -1: a single
 * text; else an array of so many. */
void ckpt_h5_attribute_texts(struct ckpt_h5 *file, const char *name,
                             const struct ckpt_h5_object *texts, int count);

/* At the very end: the first bytes of the file, for which as many zeros were
 * put first. */
#define CKPT_H5_SUPERBLOCK_BYTES 48
void ckpt_h5_superblock(struct ckpt_h5 *file, uint64_t root);

/* The checksum of HDF5's own metadata, Bob Jenkins' lookup3 of bytes, hashlittle() with an initial value of 0:
 * http://burtleburtle.net/bob/c/lookup3.c. */
uint32_t ckpt_lookup3(const unsigned char *data, size_t bytes);
