// JSON as RFC 8259 has it, read once from left to right; false for anything that the caller need not understand.
//
// False does not mean that a text is wrong: whoever gets it asks a parser of all of JSON. So what is rare is left to
// that one: keys with escapes, halves of surrogate pairs, long numbers, deep nesting.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

constexpr int MOST_DIGITS = 18;
constexpr int DEEPEST = 16;

inline bool is_digit(char byte) { return byte >= '0' && byte <= '9'; }

class Json {
public:
    explicit Json(std::string_view text) : at_(text.data()), end_(text.data() + text.size()) {}

    // Whether this byte comes next, after spaces and tabs; it is passed.
    bool passed(char byte) {
        while (at_ < end_ && (*at_ == ' ' || *at_ == '\t')) ++at_;
        if (at_ == end_ || *at_ != byte) return false;
        ++at_;
        return true;
    }

    bool is_at_end() {
        while (at_ < end_ && (*at_ == ' ' || *at_ == '\t')) ++at_;
        return at_ == end_;
    }

    // The first byte of the next value, NUL at the end.
    char next() {
        while (at_ < end_ && (*at_ == ' ' || *at_ == '\t')) ++at_;
        return at_ == end_ ? '\0' : *at_;
    }

    bool null() { return literal("null"); }

    // A string without escapes is a part of the text; another one is decoded into `room`, which must outlive it.
    bool string(std::string_view& found, std::string& room) {
        if (!passed('"')) return false;
        const char* begin = at_;
        at_ = end_of_plain(at_, end_);
        if (at_ == end_) return false;
        if (*at_ == '"') {
            found = {begin, static_cast<size_t>(at_++ - begin)};
            return true;
        }
        room.assign(begin, at_);
        while (at_ < end_ && *at_ != '"') {
            if (*at_ == '\\' ? !escape(room) : !plain_character(room)) return false;
        }
        if (at_ == end_) return false;
        ++at_;
        found = room;
        return true;
    }

    // A whole number in its shortest form, as digits.
    bool whole_number(std::string_view& found) {
        next();
        const char* begin = at_;
        if (at_ < end_ && *at_ == '-') ++at_;
        const char* digits = at_;
        while (at_ < end_ && is_digit(*at_)) ++at_;
        const size_t num_digits = at_ - digits;
        if (!num_digits || num_digits > MOST_DIGITS || (*digits == '0' && (num_digits > 1 || digits > begin))) return false;
        if (at_ < end_ && (*at_ == '.' || *at_ == 'e' || *at_ == 'E')) return false;
        found = {begin, static_cast<size_t>(at_ - begin)};
        return true;
    }

    // Hands the key of each member to `member`, which must pass its value.
    template <class Member>
    bool object(Member member) {
        if (!passed('{')) return false;
        if (passed('}')) return true;
        do {
            std::string_view key;
            next();
            const char* begin = at_;
            if (!string(key, key_room_) || key.data() != begin + 1 || !passed(':') || !member(key)) return false;
        } while (passed(','));
        return passed('}');
    }

    // Passes a value whatever it is.
    bool skip(int depth = 0) {
        std::string_view ignored;
        switch (next()) {
        case '"': return string(ignored, skip_room_);
        case '{':
            return depth < DEEPEST && object([&](std::string_view) { return skip(depth + 1); });
        case '[':
            if (depth == DEEPEST || !passed('[')) return false;
            if (passed(']')) return true;
            do {
                if (!skip(depth + 1)) return false;
            } while (passed(','));
            return passed(']');
        case 't': return literal("true");
        case 'f': return literal("false");
        case 'n': return literal("null");
        default: return number();
        }
    }

private:
    static bool is_plain(char byte) { return byte != '"' && byte != '\\' && static_cast<unsigned char>(byte) >= 0x20; }

    // The first byte that ends a run of characters which mean themselves.
    static const char* end_of_plain(const char* at, const char* end) {
#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        constexpr uint64_t EACH = 0x0101010101010101, TOP = 0x80 * EACH;
        for (uint64_t eight; end - at >= 8; at += 8) {
            std::memcpy(&eight, at, 8);
            const uint64_t quote = eight ^ '"' * EACH, backslash = eight ^ '\\' * EACH;
            // The top bit of a byte that is 0 (below 0x20), and perhaps of some above it, never of one below.
            const uint64_t ends = ((quote - EACH) & ~quote) | ((backslash - EACH) & ~backslash);
            const uint64_t found = (ends | ((eight - 0x20 * EACH) & ~eight)) & TOP;
            if (found) return at + __builtin_ctzll(found) / 8;
        }
#endif
        while (at < end && is_plain(*at)) ++at;
        return at;
    }

    bool literal(const char* word) {
        next();
        const size_t length = std::strlen(word);
        if (static_cast<size_t>(end_ - at_) < length || std::memcmp(at_, word, length)) return false;
        at_ += length;
        return true;
    }

    bool plain_character(std::string& room) {
        if (!is_plain(*at_)) return false;
        room += *at_++;
        return true;
    }

    bool escape(std::string& room) {
        if (end_ - at_ < 2) return false;
        const char kind = at_[1];
        at_ += 2;
        switch (kind) {
        case '"': case '\\': case '/': room += kind; return true;
        case 'b': room += '\b'; return true;
        case 'f': room += '\f'; return true;
        case 'n': room += '\n'; return true;
        case 'r': room += '\r'; return true;
        case 't': room += '\t'; return true;
        case 'u': return code_point(room);
        default: return false;
        }
    }

    bool code_point(std::string& room) {
        if (end_ - at_ < 4) return false;
        uint32_t code = 0;
        for (int i = 0; i < 4; ++i) {
            const char digit = *at_++;
            const char lower = static_cast<char>(digit | 0x20);
            if (!is_digit(digit) && (lower < 'a' || lower > 'f')) return false;
            code = code << 4 | static_cast<uint32_t>(is_digit(digit) ? digit - '0' : lower - 'a' + 10);
        }
        if (!code || (code >= 0xD800 && code < 0xE000)) return false;
        if (code < 0x80) {
            room += static_cast<char>(code);
        } else {
            if (code < 0x800) {
                room += static_cast<char>(0xC0 | code >> 6);
            } else {
                room += static_cast<char>(0xE0 | code >> 12);
                room += static_cast<char>(0x80 | (code >> 6 & 0x3F));
            }
            room += static_cast<char>(0x80 | (code & 0x3F));
        }
        return true;
    }

    // A number with few digits and no exponent.
    bool number() {
        const char* begin = at_;
        if (at_ < end_ && *at_ == '-') ++at_;
        const char* digits = at_;
        while (at_ < end_ && is_digit(*at_)) ++at_;
        if (at_ == digits || (*digits == '0' && at_ - digits > 1)) return false;
        if (at_ < end_ && *at_ == '.') {
            const char* fraction = ++at_;
            while (at_ < end_ && is_digit(*at_)) ++at_;
            if (at_ == fraction) return false;
        }
        return at_ - begin <= MOST_DIGITS && (at_ == end_ || (*at_ != 'e' && *at_ != 'E'));
    }

    const char *at_, *end_;
    std::string key_room_, skip_room_;
};
