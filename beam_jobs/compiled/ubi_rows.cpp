// A block of whole UBI lines -> the columns of schemas.search_log, in Arrow's layout; and which lines are left to Python.
#include <algorithm>
#include <array>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <vector>

#include "sha256.h"
#include "ubi_line.h"

namespace {

constexpr size_t MOST_APPLICATIONS = 64;  // of a block; whatever has more is no everyday log
constexpr size_t LINE_HASH_BYTES = 16;
constexpr std::string_view NO_QUERY = "\\N";  // beside the empty text
constexpr int8_t SEARCH = 0;  // beam_jobs.sources.ubi numbers the kinds of lines

struct Bits {
    std::vector<uint8_t> bytes;
    size_t length = 0;
    void add(bool bit) {
        if (length % 8 == 0) bytes.push_back(0);
        bytes.back() |= static_cast<uint8_t>(bit << (length++ % 8));
    }
};

struct Texts {
    std::vector<int32_t> offsets{0};
    std::vector<char> bytes;
    Bits valid;
    void add(const Text& text) {
        if (text) bytes.insert(bytes.end(), text->begin(), text->end());
        offsets.push_back(static_cast<int32_t>(bytes.size()));
        valid.add(text.has_value());
    }
};

Text without_empty(const Text& text) { return text && text->empty() ? Text() : text; }

}  // namespace

struct Action {
    const char* name;
    int64_t length;
    int32_t kind;
};

class UbiRows {
public:
    // Throws std::length_error for a block that Arrow's 32-bit offsets do not reach over.
    UbiRows(std::string_view block, const Action* actions, int64_t num_actions, int32_t other)
        : actions_(actions, actions + num_actions), other_(static_cast<int8_t>(other)) {
        if (block.size() > INT32_MAX) throw std::length_error("block");
        for (size_t begin = 0; begin < block.size();) {
            const size_t newline = std::min(block.find('\n', begin), block.size());
            size_t end = newline;
            while (end > begin && block[end - 1] == '\r') --end;
            if (!add(block.substr(begin, end - begin))) {
                odd_numbers.push_back(num_lines);
                odd_spans.insert(odd_spans.end(), {static_cast<int64_t>(begin), static_cast<int64_t>(end)});
            }
            ++num_lines;
            begin = newline + 1;
        }
        hash_lines();
    }

    int64_t num_lines = 0;
    std::vector<int64_t> odd_numbers, odd_spans;  // of lines left to Python: number; where it begins and ends
    std::vector<int8_t> kinds;
    Texts query_ids, client_ids, queries, document_ids, user_agents, applications;
    std::vector<int32_t> positions;
    std::vector<int64_t> times;
    Bits has_time, has_application;
    std::vector<int16_t> application_codes;
    std::vector<std::array<uint8_t, LINE_HASH_BYTES>> hashes;

private:
    bool add(std::string_view text) {
        if (!is_utf8(text) || !line_.read(text)) return false;
        const int8_t kind = kind_of(line_.action_name);
        if (kind == SEARCH && !line_.user_query) return false;
        for (const Text* id : {&line_.query_id, &line_.client_id, &line_.object_id, &line_.internal_id}) {
            if (*id && !is_plain_id(**id)) return false;
        }
        if (line_.user_query == NO_QUERY) return false;
        const int16_t application = code_of(line_.application);
        if (application == TOO_MANY) return false;
        const Text object_id = without_empty(line_.object_id);
        kinds.push_back(kind);
        query_ids.add(line_.query_id);
        client_ids.add(without_empty(line_.client_id));
        queries.add(kind == SEARCH ? line_.user_query : without_empty(line_.user_query));
        document_ids.add(object_id ? object_id : without_empty(line_.internal_id));
        positions.push_back(line_.ordinal.value_or(-1));
        times.push_back(line_.time.value_or(0));
        has_time.add(line_.time.has_value());
        user_agents.add(line_.user_agent);
        application_codes.push_back(application == NONE ? 0 : application);
        has_application.add(application != NONE);
        unhashed_[num_unhashed_++] = text;
        if (num_unhashed_ == unhashed_.size()) hash_lines();
        return true;
    }

    void hash_lines() {
        uint32_t digests[2][SHA256_WORDS];
        if (num_unhashed_ == 1) sha256(unhashed_[0], digests[0]);
        if (num_unhashed_ == 2) sha256_of_two(unhashed_[0], unhashed_[1], digests[0], digests[1]);
        for (size_t line = 0; line < num_unhashed_; ++line) {
            std::array<uint8_t, LINE_HASH_BYTES>& hash = hashes.emplace_back();
            for (size_t byte = 0; byte < LINE_HASH_BYTES; ++byte) {
                hash[byte] = static_cast<uint8_t>(digests[line][byte / 4] >> (24 - 8 * (byte % 4)));
            }
        }
        num_unhashed_ = 0;
    }

    int8_t kind_of(const Text& action) const {
        if (!action || action->empty()) return SEARCH;
        for (const Action& known : actions_) {
            if (*action == std::string_view(known.name, known.length)) return static_cast<int8_t>(known.kind);
        }
        return other_;
    }

    int16_t code_of(const Text& application) {
        if (!application) return NONE;
        for (size_t code = 0; code < known_applications_.size(); ++code) {
            if (known_applications_[code] == *application) return static_cast<int16_t>(code);
        }
        if (known_applications_.size() == MOST_APPLICATIONS) return TOO_MANY;
        known_applications_.emplace_back(*application);
        applications.add(application);
        return static_cast<int16_t>(known_applications_.size() - 1);
    }

    static constexpr int16_t NONE = -1, TOO_MANY = -2;
    const std::vector<Action> actions_;
    const int8_t other_;
    UbiLine line_;
    std::array<std::string_view, 2> unhashed_;  // lines whose rows are there but for their hash
    size_t num_unhashed_ = 0;
    std::vector<std::string> known_applications_;
};

extern "C" {

// The rows of a block, nullptr where there is no room for them. `actions`: the kinds of known action names, `other` that
// of every other one.
UbiRows* ubi_rows_new(const char* block, int64_t length, const Action* actions, int64_t num_actions, int32_t other) {
    try {
        return new UbiRows({block, static_cast<size_t>(length)}, actions, num_actions, other);
    } catch (const std::bad_alloc&) {
        return nullptr;
    } catch (const std::length_error&) {
        return nullptr;
    }
}

void ubi_rows_free(UbiRows* rows) { delete rows; }

int64_t ubi_rows_num_lines(const UbiRows* rows) { return rows->num_lines; }

// The array of a number as pointer and bytes: the lines left to Python (number; begin and end), then the columns in the
// order of LOG_ROW: bits of what is there, offsets and bytes of texts; nothing for bits that would all be set.
const void* ubi_rows_array(const UbiRows* rows, int32_t number, int64_t* num_bytes) {
    const void* found = nullptr;
    int32_t next = 0;
    const auto array = [&](const auto& values) {
        if (next++ == number) {
            found = values.data();
            *num_bytes = static_cast<int64_t>(values.size() * sizeof(values[0]));
        }
    };
    const auto texts = [&](const Texts& column) {
        array(column.valid.bytes);
        array(column.offsets);
        array(column.bytes);
    };
    array(rows->odd_numbers);
    array(rows->odd_spans);
    array(rows->kinds);
    texts(rows->query_ids);
    texts(rows->client_ids);
    texts(rows->queries);
    texts(rows->document_ids);
    array(rows->positions);
    array(rows->has_time.bytes);
    array(rows->times);
    texts(rows->user_agents);
    array(rows->has_application.bytes);
    array(rows->application_codes);
    texts(rows->applications);
    array(rows->hashes);
    return found;
}
}
