// One everyday line of a UBI log -> its fields. What an everyday line means is what beam_jobs/sources/ubi.py makes of it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

using Text = std::optional<std::string_view>;

// The fields of a line, parts of it or of its own `rooms`, and so valid until the next line is read.
class UbiLine {
public:
    Text query_id, client_id, user_query, action_name, application, user_agent, object_id, internal_id;
    std::optional<int64_t> time;  // milliseconds since 1970, UTC
    std::optional<int32_t> ordinal;

    // Whether the line is an everyday one; if not, its fields mean nothing. `line` must be UTF-8.
    bool read(std::string_view line);

private:
    std::string rooms_[10];
};

// Whether an id is what Python makes of it as it stands: without space around it, no float, no mark of nothing.
bool is_plain_id(std::string_view id);

// Whether bytes are UTF-8 as the Unicode Standard has it (table 3-7: no surrogates, no overlong forms).
bool is_utf8(std::string_view bytes);

// Milliseconds of `2026-09-01T10:00:00.123Z`: up to six digits of fraction or none, `Z` or `+00:00`, the years 1990 to 2099.
std::optional<int64_t> milliseconds_of(std::string_view text);
