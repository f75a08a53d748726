/* What a MODEL is called where others read it: model cards and configurations
 * that leave this machine have no paths of it. */
#pragma once

#define WEIGHTS_NAME_MAX 256

/* "org/name" of a folder in a cache of the Hugging Face hub
 * (models--org--name/snapshots/...), the run's folder's name of a checkpoint in
 * it, otherwise the last part of the path. */
void weights_name(const char *path, char name[WEIGHTS_NAME_MAX]);
