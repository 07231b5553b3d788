// Texts -> distinct words, numbered as they first appear, and their trigrams: one pass over the bytes.
#include "tokenise.h"

#include <array>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <utility>

namespace {

constexpr uint32_t MARK = 0x110000;  // stands before and after a word: one past the last code point
constexpr uint64_t COMPUTED_IDS = 37 * 37 * 37;

struct Bytes {
    std::array<char, 256> lower{}, same{};
    std::array<bool, 256> space{};   // as str.split sees ASCII
    std::array<bool, 256> unseen{};  // control characters of ASCII; no normalised text has one
    std::array<int8_t, 256> code{};  // in a computed id; -1: none

    Bytes() {
        code.fill(-1);
        for (int byte = 0; byte < 256; byte++) {
            same[byte] = static_cast<char>(byte);
            lower[byte] = static_cast<char>('A' <= byte && byte <= 'Z' ? byte + 32 : byte);
            space[byte] = byte == ' ' || (9 <= byte && byte <= 13) || (28 <= byte && byte <= 31);
            unseen[byte] = byte == 127 || (byte < 32 && !space[byte]);
        }
        for (int i = 0; i < 26; i++) code['a' + i] = static_cast<int8_t>(1 + i);
        for (int i = 0; i < 10; i++) code['0' + i] = static_cast<int8_t>(27 + i);
    }
};
const Bytes BYTES;

uint64_t hashed(uint32_t before, uint32_t here, uint32_t after) {
    uint64_t digest = 0xCBF29CE484222325;
    for (uint64_t point : {before, here, after}) digest = (digest ^ point) * 0x100000001B3;
    digest = (digest ^ (digest >> 33)) * 0xFF51AFD7ED558CCD;
    digest = (digest ^ (digest >> 33)) * 0xC4CEB9FE1A85EC53;
    return digest ^ (digest >> 33);
}

struct Letter {
    uint32_t point;
    int32_t code;  // in a computed id; -1: only hashed
};
constexpr Letter BOUNDARY{MARK, 0};

// The code point at `at`, which moves behind it. Surrogates are points like any other; bytes are never read beyond end.
Letter next_letter(const unsigned char*& at, const unsigned char* end) {
    const unsigned char first = *at++;
    if (first < 0x80) return {first, BYTES.code[first]};
    const int more = first >= 0xF0 ? 3 : first >= 0xE0 ? 2 : 1;
    uint32_t point = first & (0x3F >> more);
    for (int i = 0; i < more && at < end; i++) point = point << 6 | (*at++ & 0x3F);
    return {point, -1};
}

// Each distinct word under its number: open addressing, at most half full.
class Vocabulary {
public:
    Vocabulary() : slots_(1 << 12) {}

    // The number of a word, which has PADDING readable bytes behind it, and whether it is new.
    std::pair<int32_t, bool> number(const char* word, uint32_t length) {
        const uint64_t head = head_of(word, length);
        const uint64_t hash = hash_of(head, word, length);
        for (size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
            Slot& slot = slots_[at];
            if (slot.number < 0) {
                const int32_t number = num_words_;
                slot = {head, length, number};
                long_at_.push_back(long_bytes_.size());
                if (length > 8) {
                    long_bytes_.insert(long_bytes_.end(), word, word + length);
                    long_bytes_.resize(long_bytes_.size() + PADDING);
                }
                num_words_++;
                if (num_words_ * size_t{2} > slots_.size()) grow();
                return {number, true};
            }
            if (slot.head == head && slot.length == length &&
                (length <= 8 || std::memcmp(long_bytes_.data() + long_at_[slot.number], word, length) == 0))
                return {slot.number, false};
        }
    }

private:
    struct Slot {
        uint64_t head = 0;  // the first eight bytes, zeros behind a shorter word
        uint32_t length = 0;
        int32_t number = -1;
    };

    static uint64_t head_of(const char* word, uint32_t length) {
        uint64_t head;
        std::memcpy(&head, word, 8);
        return length >= 8 ? head : head & ((uint64_t{1} << (8 * length)) - 1);
    }

    static uint64_t mixed(uint64_t hash, uint64_t with) {
        hash = (hash ^ with) * 0x9E3779B97F4A7C15;
        return hash ^ (hash >> 32);
    }

    static uint64_t hash_of(uint64_t head, const char* word, uint32_t length) {
        uint64_t hash = mixed(length, head);
        for (uint32_t at = 8; at < length; at += 8) hash = mixed(hash, head_of(word + at, length - at));
        return mixed(hash, 0);
    }

    void grow() {
        std::vector<Slot> old(slots_.size() * 2);
        old.swap(slots_);
        for (const Slot& slot : old) {
            if (slot.number < 0) continue;
            const char* word = slot.length > 8 ? long_bytes_.data() + long_at_[slot.number] : nullptr;
            size_t at = hash_of(slot.head, word, slot.length) & (slots_.size() - 1);
            while (slots_[at].number >= 0) at = (at + 1) & (slots_.size() - 1);
            slots_[at] = slot;
        }
    }

    std::vector<Slot> slots_;
    std::vector<char> long_bytes_;  // the words of more than eight bytes, PADDING behind each
    std::vector<size_t> long_at_;   // of each word: where it begins there, if it is long
    int32_t num_words_ = 0;
};

}  // namespace

void Line::read(const char* text, size_t length, bool normalised) {
    const std::array<char, 256>& as = normalised ? BYTES.same : BYTES.lower;
    bytes.resize(length + PADDING);
    words.clear();
    uint32_t begin = 0, end = 0;
    for (size_t at = 0; at < length; at++) {
        const unsigned char byte = static_cast<unsigned char>(text[at]);
        if (BYTES.unseen[byte]) continue;
        bytes[end] = as[byte];
        if (BYTES.space[byte]) {
            if (end > begin) words.push_back({begin, end - begin});
            begin = end + 1;
        }
        end++;
    }
    if (end > begin) words.push_back({begin, end - begin});
}

void append_trigrams(const char* word, size_t length, uint64_t table_rows, std::vector<uint32_t>& ids) {
    const unsigned char* at = reinterpret_cast<const unsigned char*>(word);
    const unsigned char* end = at + length;
    const uint64_t num_computed = table_rows > COMPUTED_IDS ? COMPUTED_IDS : 0;  // a smaller table hashes all trigrams
    Letter before = BOUNDARY, here = next_letter(at, end);
    while (here.point != MARK) {
        const Letter after = at < end ? next_letter(at, end) : BOUNDARY;
        if (before.code < 0 || here.code < 0 || after.code < 0 || !num_computed)
            ids.push_back(static_cast<uint32_t>(
                num_computed + hashed(before.point, here.point, after.point) % (table_rows - num_computed)));
        else
            ids.push_back(static_cast<uint32_t>((before.code * 37 + here.code) * 37 + after.code));
        before = here;
        here = after;
    }
}

extern "C" {

int64_t find_not_ascii(const char* data, const int64_t* offsets, int64_t num_texts, int64_t* found) {
    int64_t num_found = 0;
    for (int64_t i = 0; i < num_texts; i++) {
        unsigned char bits = 0;
        for (int64_t at = offsets[i]; at < offsets[i + 1]; at++) bits |= static_cast<unsigned char>(data[at]);
        if (bits & 0x80) found[num_found++] = i;
    }
    return num_found;
}

Tokens* tokens_new(const char* data, const int64_t* offsets, int64_t num_texts, const char* other_data,
                   const int64_t* other_offsets, const int64_t* replaced, int64_t num_replaced, uint64_t table_rows) {
    try {
        auto tokens = std::make_unique<Tokens>();
        tokens->word_offsets.reserve(num_texts + 1);
        tokens->word_offsets.push_back(0);
        tokens->trigram_offsets.push_back(0);
        Vocabulary vocabulary;
        Line line;
        int64_t other = 0;
        for (int64_t i = 0; i < num_texts; i++) {
            const bool normalised = other < num_replaced && replaced[other] == i;
            const int64_t* bounds = normalised ? other_offsets + other++ : offsets + i;
            const int64_t length = bounds[1] - bounds[0];
            if (length > std::numeric_limits<int32_t>::max()) return nullptr;
            line.read((normalised ? other_data : data) + bounds[0], static_cast<size_t>(length), normalised);
            for (const Line::Word& word : line.words) {
                const char* bytes = line.bytes.data() + word.begin;
                const auto [number, is_new] = vocabulary.number(bytes, word.length);
                tokens->words.push_back(number);
                if (is_new) {
                    append_trigrams(bytes, word.length, table_rows, tokens->trigrams);
                    tokens->trigram_offsets.push_back(static_cast<int64_t>(tokens->trigrams.size()));
                }
            }
            tokens->word_offsets.push_back(static_cast<int64_t>(tokens->words.size()));
        }
        return tokens.release();
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

void tokens_free(Tokens* tokens) { delete tokens; }

const void* tokens_array(const Tokens* tokens, int32_t number, int64_t* length) {
    const auto give = [length](const auto& array) -> const void* {
        *length = static_cast<int64_t>(array.size());
        return array.data();
    };
    switch (number) {
        case 0: return give(tokens->word_offsets);
        case 1: return give(tokens->words);
        case 2: return give(tokens->trigram_offsets);
        default: return give(tokens->trigrams);
    }
}
}
