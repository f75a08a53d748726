/* The table of first bytes, and the count of what no text has.
 *
 * Who points a tokenizer at a folder also points it at what lies there: packed
 * files, models, tables. Read as text they would be learned as noise, and
 * nobody would see it in a loss that falls all the same. So a file is asked
 * first what it is, as file(1) does, and the answer says what to do.
 *
 * First bytes do not always tell: "BM" begins a bitmap and a text about BMW.
 * Where a text could begin so, it counts only together with a NUL or with what
 * is no UTF-8. A few wrong bytes are common in web text, and become U+FFFD; a
 * file is refused for a NUL, or for more than one wrong byte in a thousand. A
 * stream is counted as it comes and judged each time that it has become twice
 * as long: early enough for a wrong file, late enough for a text whose first
 * page is in another encoding. A character can be divided between two parts, so
 * the last bytes wait for the next. */
#include "src/text/binary_kind.h"

#include <assert.h>
#include <string.h>

#include "src/text/unicode.h"

#define PACKED(program) "give its text on stdin: " program " FILE | ... -"
#define PANDAS(read)                                                           \
    "make JSON lines of it: python3 -c \"import pandas; pandas." read          \
    "('FILE').to_json('FILE.jsonl', orient='records', lines=True)\""
#define ARCHIVE "unpack it into a folder, and name that"
#define MODEL "this is a model, which programs take as MODEL"
#define NUMBERS                                                                \
    "write the texts in it as JSON lines, with the program that made it"

/* A row's first bytes; those that a text could begin with count only where the
 * file has what no text has. */
struct binary_magic {
    struct binary_kind kind;
    size_t at, bytes;
    const char *magic;
    bool printable;
};
#define AT(offset, text) (offset), sizeof(text) - 1, (text)

static const struct binary_magic magics[] = {
    { { "Parquet", PANDAS("read_parquet") }, AT(0, "PAR1"), true },
    { { "Arrow", PANDAS("read_feather") }, AT(0, "ARROW1"), true },
    { { "Arrow stream",
        "make JSON lines of it: python3 -c \"import datasets; "
        "datasets.Dataset.from_file('FILE').to_json('FILE.jsonl')\"" },
      AT(0, "\xff\xff\xff\xff"),
      false },
    { { "ORC", PANDAS("read_orc") }, AT(0, "ORC"), true },
    { { "Avro", NUMBERS }, AT(0, "Obj\1"), false },
    { { "zip (or docx, npz, PyTorch)", ARCHIVE }, AT(0, "PK\3\4"), false },
    { { "zip (or docx, npz, PyTorch)", ARCHIVE }, AT(0, "PK\5\6"), false },
    { { "zip (or docx, npz, PyTorch)", ARCHIVE }, AT(0, "PK\7\x8"), false },
    { { "tar", ARCHIVE }, AT(257, "ustar"), true },
    { { "7z", ARCHIVE }, AT(0, "7z\xbc\xaf\x27\x1c"), false },
    { { "rar", ARCHIVE }, AT(0, "Rar!\x1a\7"), false },
    { { "ar (or deb, a library)", ARCHIVE }, AT(0, "!<arch>\n"), true },
    { { "rpm", ARCHIVE }, AT(0, "\xed\xab\xee\xdb"), false },
    { { "xz", PACKED("xz -dc") }, AT(0, "\xfd\x37zXZ"), false },
    { { "lz4", PACKED("lz4 -dc") }, AT(0, "\4\x22\x4d\x18"), false },
    { { "compress", PACKED("gzip -dc") }, AT(0, "\x1f\x9d"), false },
    { { "gz (packed twice)", PACKED("gzip -dc") }, AT(0, "\x1f\x8b"), false },
    { { "zstd (packed twice)", PACKED("zstd -dc") },
      AT(0, "\x28\xb5\x2f\xfd"),
      false },
    { { "bz2 (packed twice)", PACKED("bzip2 -dc") }, AT(0, "BZh"), true },
    { { "ELF program", NULL },
      AT(0, "\x7f"
            "ELF"),
      false },
    { { "Windows program", NULL }, AT(0, "MZ"), true },
    { { "Mach-O program", NULL }, AT(0, "\xfe\xed\xfa"), false },
    { { "Mach-O program", NULL }, AT(0, "\xce\xfa\xed\xfe"), false },
    { { "Mach-O program", NULL }, AT(0, "\xcf\xfa\xed\xfe"), false },
    { { "Java class", NULL }, AT(0, "\xca\xfe\xba\xbe"), false },
    { { "Python byte code", NULL }, AT(2, "\r\n\0\0\0\0"), false },
    { { "Python byte code", NULL }, AT(2, "\r\n\1\0\0\0"), false },
    { { "Python byte code", NULL }, AT(2, "\r\n\3\0\0\0"), false },
    { { "WebAssembly", NULL }, AT(0, "\0asm"), false },
    { { "GGUF", MODEL }, AT(0, "GGUF"), true },
    { { "safetensors", MODEL }, AT(5, "\0\0\0{"), false },
    { { "HDF5", NUMBERS }, AT(0, "\x89HDF\r\n\x1a\n"), false },
    { { "NumPy", NUMBERS }, AT(0, "\x93NUMPY"), false },
    { { "pickle", NUMBERS }, AT(0, "\x80\2"), false },
    { { "pickle", NUMBERS }, AT(0, "\x80\3"), false },
    { { "pickle", NUMBERS }, AT(0, "\x80\4"), false },
    { { "pickle", NUMBERS }, AT(0, "\x80\5"), false },
    { { "token file of llm.c", NUMBERS }, AT(0, "\x88\xd8\x34\x01"), false },
    { { "token index of Megatron", NUMBERS }, AT(0, "MMIDIDX\0"), false },
    { { "SQLite",
        "make JSON lines of it: sqlite3 FILE \"select json_object('text', "
        "COLUMN) from TABLE\" > FILE.jsonl" },
      AT(0, "SQLite format 3\0"),
      false },
    { { "PDF", "take its text out: pdftotext FILE FILE.txt" },
      AT(0, "%PDF-"),
      false },
    { { "old Office document",
        "take its text out: soffice --headless --convert-to txt:Text FILE" },
      AT(0, "\xd0\xcf\x11\xe0"),
      false },
    { { "PNG image", NULL }, AT(0, "\x89PNG"), false },
    { { "JPEG image", NULL }, AT(0, "\xff\xd8\xff"), false },
    { { "GIF image", NULL }, AT(0, "GIF8"), true },
    { { "TIFF image", NULL }, AT(0, "II*\0"), false },
    { { "TIFF image", NULL }, AT(0, "MM\0*"), false },
    { { "BMP image", NULL }, AT(0, "BM"), true },
    { { "icon", NULL }, AT(0, "\0\0\1\0"), false },
    { { "WebP, WAV or AVI", NULL }, AT(0, "RIFF"), true },
    { { "MP4", NULL }, AT(4, "ftyp"), true },
    { { "Matroska", NULL }, AT(0, "\x1a\x45\xdf\xa3"), false },
    { { "Ogg", NULL }, AT(0, "OggS"), true },
    { { "FLAC", NULL }, AT(0, "fLaC"), true },
    { { "MP3", NULL }, AT(0, "ID3"), true },
    { { "font", NULL }, AT(0, "\0\1\0\0"), false },
    { { "font", NULL }, AT(0, "wOF"), true },
    { { "font", NULL }, AT(0, "OTTO"), true },
    { { "UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8" },
      AT(0, "\xff\xfe"),
      false },
    { { "UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8" },
      AT(0, "\xfe\xff"),
      false },
};

/* Text of few other characters than ASCII's in 16 bits each: every second byte
 * is NUL, and no other. */
static const struct binary_kind *find_wide(const uint8_t *head, size_t bytes)
{
    static const struct binary_kind wide[] = {
        { "UTF-16 text", "iconv -f UTF-16BE -t UTF-8 FILE > FILE.utf8" },
        { "UTF-16 text", "iconv -f UTF-16LE -t UTF-8 FILE > FILE.utf8" },
    };
    size_t nul[2] = { 0, 0 };
    for (size_t i = 0; i < bytes; i++)
        nul[i % 2] += head[i] == 0;
    for (size_t odd = 0; odd < 2; odd++)
        if (bytes >= 8 && nul[!odd] == 0 && 5 * nul[odd] > 2 * bytes)
            return &wide[odd];
    return NULL;
}

const struct binary_kind *binary_kind_find(const uint8_t *head, size_t bytes)
{
    struct binary_count count = BINARY_COUNT_NONE;
    if (bytes > BINARY_KIND_HEAD_BYTES)
        bytes = BINARY_KIND_HEAD_BYTES;
    bool text = binary_count_add(&count, head, bytes) && count.invalid == 0;
    for (size_t i = 0; i < sizeof magics / sizeof magics[0]; i++)
        if (magics[i].at + magics[i].bytes <= bytes &&
            memcmp(head + magics[i].at, magics[i].magic, magics[i].bytes) ==
                0 &&
            !(magics[i].printable && text))
            return &magics[i].kind;
    return find_wide(head, bytes);
}

enum err binary_kind_check(const char *file, const char *wanted,
                           const uint8_t *head, size_t bytes)
{
    assert(file != NULL && wanted != NULL);
    const struct binary_kind *kind = binary_kind_find(head, bytes);
    if (kind == NULL)
        return ERR_OK;
    return err_set(ERR_DATA, "%s is not %s but %s; %s", file, wanted,
                   kind->name,
                   kind->remedy != NULL ? kind->remedy : "leave it out");
}

static void count_part(struct binary_count *count, const uint8_t *text,
                       size_t bytes)
{
    size_t left = 0;
    const uint8_t *nul = memchr(text, 0, bytes);
    if (nul != NULL && count->nul < 0)
        count->nul = count->bytes + (nul - text);
    count->bytes += (int64_t)bytes;
    while (count->rest_bytes > 0 && bytes > 0) {
        count->rest[count->rest_bytes++] = *text++;
        bytes--;
        count->invalid +=
            (int64_t)unicode_invalid(count->rest, count->rest_bytes, &left);
        memmove(count->rest, count->rest + count->rest_bytes - left, left);
        count->rest_bytes = left;
    }
    if (bytes == 0)
        return;
    count->invalid += (int64_t)unicode_invalid(text, bytes, &left);
    memcpy(count->rest, text + bytes - left, left);
    count->rest_bytes = left;
}

/* Judged only at doublings and at the end: a ratio that is asked at every byte
 * would refuse a text for its first accent. */
static void count_judge(struct binary_count *count)
{
    count->bad = count->bad || 1000 * count->invalid > count->bytes;
}

bool binary_count_add(struct binary_count *count, const uint8_t *text,
                      size_t bytes)
{
    assert(count != NULL && (text != NULL || bytes == 0));
    if (bytes == 0) {
        count->invalid += (int64_t)count->rest_bytes;
        count->rest_bytes = 0;
        count_judge(count);
    }
    while (bytes > 0) {
        int64_t room = count->due - count->bytes;
        size_t part = (int64_t)bytes < room ? bytes : (size_t)room;
        count_part(count, text, part);
        text += part;
        bytes -= part;
        if (count->bytes == count->due) {
            count_judge(count);
            count->due *= 2;
        }
    }
    return count->nul < 0 && !count->bad;
}

void binary_count_skip(struct binary_count *count, int64_t bytes)
{
    assert(count != NULL && bytes >= 0);
    count->rest_bytes = 0;
    count->bytes += bytes;
    while (count->due <= count->bytes)
        count->due *= 2;
}

enum err binary_count_refuse(const struct binary_count *count, const char *file)
{
    if (count->nul >= 0)
        return err_set(ERR_DATA,
                       "%s is not text: its byte %lld is NUL, as in files of "
                       "tokens or numbers",
                       file, (long long)count->nul);
    return err_set(ERR_DATA,
                   "%s is not UTF-8: %lld of its first %lld bytes are invalid; "
                   "if it is Latin-1: iconv -f LATIN1 -t UTF-8 FILE > "
                   "FILE.utf8",
                   file, (long long)count->invalid, (long long)count->bytes);
}

enum err binary_kind_text(const char *file, const uint8_t *text, size_t bytes)
{
    assert(file != NULL && (text != NULL || bytes == 0));
    struct binary_count count = BINARY_COUNT_NONE;
    TRY(binary_kind_check(file, "text", text, bytes));
    if (binary_count_add(&count, text, bytes) &&
        binary_count_add(&count, NULL, 0))
        return ERR_OK;
    return binary_count_refuse(&count, file);
}
