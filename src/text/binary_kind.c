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
#define ARROW "tessera-data tokenize takes it from a file NAME.arrow"
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
#define MAGIC(name, remedy, at, magic, printable)                              \
    {                                                                          \
        { name, remedy }, at, sizeof(magic) - 1, magic, printable              \
    }
#define BYTES(name, remedy, at, magic) MAGIC(name, remedy, at, magic, false)
#define TEXT(name, remedy, at, magic) MAGIC(name, remedy, at, magic, true)

static const struct binary_magic magics[] = {
    TEXT("Parquet",
         "tessera-data tokenize takes it from a file NAME.parquet; or " PANDAS(
             "read_parquet"),
         0, "PAR1"),
    TEXT("Arrow", ARROW, 0, "ARROW1"),
    BYTES("Arrow stream", ARROW, 0, "\xff\xff\xff\xff"),
    TEXT("ORC", PANDAS("read_orc"), 0, "ORC"),
    BYTES("Avro", NUMBERS, 0, "Obj\1"),
    BYTES("zip (or docx, npz, PyTorch)", ARCHIVE, 0, "PK\3\4"),
    BYTES("zip (or docx, npz, PyTorch)", ARCHIVE, 0, "PK\5\6"),
    BYTES("zip (or docx, npz, PyTorch)", ARCHIVE, 0, "PK\7\x8"),
    TEXT("tar", ARCHIVE, 257, "ustar"),
    BYTES("7z", ARCHIVE, 0, "7z\xbc\xaf\x27\x1c"),
    BYTES("rar", ARCHIVE, 0, "Rar!\x1a\7"),
    TEXT("ar (or deb, a library)", ARCHIVE, 0, "!<arch>\n"),
    BYTES("rpm", ARCHIVE, 0, "\xed\xab\xee\xdb"),
    BYTES("xz", PACKED("xz -dc"), 0, "\xfd\x37zXZ"),
    BYTES("lz4", PACKED("lz4 -dc"), 0, "\4\x22\x4d\x18"),
    BYTES("compress", PACKED("gzip -dc"), 0, "\x1f\x9d"),
    BYTES("gz (packed twice)", PACKED("gzip -dc"), 0, "\x1f\x8b"),
    BYTES("zstd (packed twice)", PACKED("zstd -dc"), 0, "\x28\xb5\x2f\xfd"),
    TEXT("bz2 (packed twice)", PACKED("bzip2 -dc"), 0, "BZh"),
    BYTES("ELF program", NULL, 0,
          "\x7f"
          "ELF"),
    TEXT("Windows program", NULL, 0, "MZ"),
    BYTES("Mach-O program", NULL, 0, "\xfe\xed\xfa"),
    BYTES("Mach-O program", NULL, 0, "\xce\xfa\xed\xfe"),
    BYTES("Mach-O program", NULL, 0, "\xcf\xfa\xed\xfe"),
    BYTES("Java class", NULL, 0, "\xca\xfe\xba\xbe"),
    BYTES("Python byte code", NULL, 2, "\r\n\0\0\0\0"),
    BYTES("Python byte code", NULL, 2, "\r\n\1\0\0\0"),
    BYTES("Python byte code", NULL, 2, "\r\n\3\0\0\0"),
    BYTES("WebAssembly", NULL, 0, "\0asm"),
    TEXT("GGUF", MODEL, 0, "GGUF"),
    BYTES("safetensors", MODEL, 5, "\0\0\0{"),
    BYTES("HDF5", NUMBERS, 0, "\x89HDF\r\n\x1a\n"),
    BYTES("NumPy", NUMBERS, 0, "\x93NUMPY"),
    BYTES("pickle", NUMBERS, 0, "\x80\2"),
    BYTES("pickle", NUMBERS, 0, "\x80\3"),
    BYTES("pickle", NUMBERS, 0, "\x80\4"),
    BYTES("pickle", NUMBERS, 0, "\x80\5"),
    BYTES("token file of llm.c", NUMBERS, 0, "\x88\xd8\x34\x01"),
    BYTES("token index of Megatron", NUMBERS, 0, "MMIDIDX\0"),
    BYTES("SQLite",
          "make JSON lines of it: sqlite3 FILE \"select json_object('text', "
          "COLUMN) from TABLE\" > FILE.jsonl",
          0, "SQLite format 3\0"),
    BYTES("PDF", "take its text out: pdftotext FILE FILE.txt", 0, "%PDF-"),
    BYTES("old Office document",
          "take its text out: soffice --headless --convert-to txt:Text FILE", 0,
          "\xd0\xcf\x11\xe0"),
    BYTES("PNG image", NULL, 0, "\x89PNG"),
    BYTES("JPEG image", NULL, 0, "\xff\xd8\xff"),
    TEXT("GIF image", NULL, 0, "GIF8"),
    BYTES("TIFF image", NULL, 0, "II*\0"),
    BYTES("TIFF image", NULL, 0, "MM\0*"),
    TEXT("BMP image", NULL, 0, "BM"),
    BYTES("icon", NULL, 0, "\0\0\1\0"),
    TEXT("WebP, WAV or AVI", NULL, 0, "RIFF"),
    TEXT("MP4", NULL, 4, "ftyp"),
    BYTES("Matroska", NULL, 0, "\x1a\x45\xdf\xa3"),
    TEXT("Ogg", NULL, 0, "OggS"),
    TEXT("FLAC", NULL, 0, "fLaC"),
    TEXT("MP3", NULL, 0, "ID3"),
    BYTES("font", NULL, 0, "\0\1\0\0"),
    TEXT("font", NULL, 0, "wOF"),
    TEXT("font", NULL, 0, "OTTO"),
    BYTES("UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8", 0,
          "\xff\xfe"),
    BYTES("UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE > FILE.utf8", 0,
          "\xfe\xff"),
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
