#include "ubi_line.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "json_text.h"

namespace {

constexpr int64_t FIRST_MS = 631152000000, END_MS = 4102444800000;  // the years 1990 to 2099
constexpr std::string_view MARKS_OF_NOTHING[] = {  // schemas.text_contract
    "\\N", "NULL", "Null", "null", "(null)", "None", "none", "NaN", "nan", "NaT", "NA", "N/A", "<NA>", "undefined",
};
constexpr size_t LONGEST_MARK = 9;
constexpr std::string_view FIRST_OF_MARKS = "\\Nn(<u";
constexpr size_t MOST_PLACE_DIGITS = 9;

// A field may come once: of repeated keys the last one counts, which is left to others.
struct Once {
    uint32_t seen = 0;
    bool first(int field) {
        const uint32_t bit = 1u << field;
        const bool is_first = !(seen & bit);
        seen |= bit;
        return is_first;
    }
};

bool read_text(Json& json, Text& field, std::string& room) {
    if (json.next() == 'n') return json.null();
    std::string_view found;
    if (!json.string(found, room)) return false;
    field = found;
    return true;
}

// Ids may be whole numbers; 0 is one that counts for nothing in some places, which is left to others.
bool read_id(Json& json, Text& field, std::string& room) {
    const char next = json.next();
    if (next == '"' || next == 'n') return read_text(json, field, room);
    std::string_view found;
    if (!json.whole_number(found) || found == "0") return false;
    field = found;
    return true;
}

bool read_time(Json& json, std::optional<int64_t>& field, std::string& room) {
    if (json.next() == 'n') return json.null();
    std::string_view found;
    if (json.next() == '"') {
        if (!json.string(found, room)) return false;
        field = milliseconds_of(found);
        return field.has_value();
    }
    if (!json.whole_number(found) || found[0] == '-') return false;
    int64_t value = 0;
    for (const char digit : found) value = value * 10 + (digit - '0');
    field = value;
    return value >= FIRST_MS && value < END_MS;
}

bool read_place(Json& json, std::optional<int32_t>& field, std::string& room) {
    if (json.next() == 'n') return json.null();
    if (json.next() == '{') {  // UBI 1.0 to 1.2
        Once once;
        return json.object([&](std::string_view key) {
            if (key != "index") return json.skip();
            return once.first(0) && json.next() != '{' && read_place(json, field, room);
        });
    }
    std::string_view found;
    if (json.next() == '"') {
        if (!json.string(found, room) || found.empty() || !std::all_of(found.begin(), found.end(), is_digit)) return false;
    } else if (!json.whole_number(found) || found[0] == '-') {
        return false;
    }
    if (found.size() > MOST_PLACE_DIGITS) return false;
    int32_t value = 0;
    for (const char digit : found) value = value * 10 + (digit - '0');
    field = value;
    return true;
}

// Whether the text may begin, or end, with Unicode's white space (U+0085, U+00A0, U+1680, U+2000 to U+205F, U+3000).
bool may_be_space(std::string_view character) {
    const auto first = static_cast<unsigned char>(character[0]);
    if (first <= ' ' || first == 0x7F || first == 0xC2 || first == 0xE1 || first == 0xE2) return true;
    return first == 0xE3 && character.size() > 1 && static_cast<unsigned char>(character[1]) == 0x80;
}

std::string_view last_character(std::string_view text) {
    size_t begin = text.size() - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    return text.substr(begin);
}

// Whether the text may be a float: nothing but digits and marks, with a point or a plus, and one point at most.
bool may_be_float(std::string_view text) {
    int points = 0, pluses = 0;
    for (const char byte : text) {
        if (byte == '.') ++points;
        else if (byte == '+') ++pluses;
        else if (!is_digit(byte) && byte != 'e' && byte != 'E' && byte != '-') return false;
    }
    return points + pluses && points <= 1;
}

// A member that is an object or null.
template <class Member>
bool read_object(Json& json, Member member) {
    return json.next() == 'n' ? json.null() : json.object(member);
}

// Two decimal digits, -1 for anything else.
int two_digits(const char* at) {
    return is_digit(at[0]) && is_digit(at[1]) ? (at[0] - '0') * 10 + (at[1] - '0') : -1;
}

int days_in_month(int year, int month) {
    constexpr int DAYS[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    const bool is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    return DAYS[month - 1] + (month == 2 && is_leap);
}

// Of the proleptic Gregorian calendar, since 1970-01-01: years begin in March, so that a leap day ends one.
int64_t days_since_1970(int year, int month, int day) {
    const int64_t shifted = month > 2 ? year : year - 1;
    const int64_t day_of_year = (153 * (month > 2 ? month - 3 : month + 9) + 2) / 5 + day - 1;
    return 365 * shifted + shifted / 4 - shifted / 100 + shifted / 400 + day_of_year - 719468;
}

}  // namespace

bool UbiLine::read(std::string_view line) {
    query_id = client_id = user_query = action_name = application = user_agent = object_id = internal_id = std::nullopt;
    time = std::nullopt;
    ordinal = std::nullopt;
    Json json(line);
    Once line_once, query_once, event_once, object_once, place_once;
    const auto of_object = [&](std::string_view key) {
        if (key == "object_id") return object_once.first(0) && read_id(json, object_id, rooms_[0]);
        if (key == "internal_id") return object_once.first(1) && read_id(json, internal_id, rooms_[1]);
        return json.skip();
    };
    const auto of_place = [&](std::string_view key) {
        return key == "ordinal" ? place_once.first(0) && read_place(json, ordinal, rooms_[9]) : json.skip();
    };
    const auto of_event = [&](std::string_view key) {
        if (key == "object") return event_once.first(0) && read_object(json, of_object);
        if (key == "position") return event_once.first(1) && read_object(json, of_place);
        return json.skip();
    };
    const auto of_query = [&](std::string_view key) {
        return key == "user_agent" ? query_once.first(0) && read_text(json, user_agent, rooms_[2]) : json.skip();
    };
    const auto of_line = [&](std::string_view key) {
        if (key == "query_id") return line_once.first(0) && read_id(json, query_id, rooms_[3]);
        if (key == "client_id") return line_once.first(1) && read_id(json, client_id, rooms_[4]);
        if (key == "user_query") return line_once.first(2) && read_text(json, user_query, rooms_[5]);
        if (key == "action_name") return line_once.first(3) && read_text(json, action_name, rooms_[6]);
        if (key == "timestamp") return line_once.first(4) && read_time(json, time, rooms_[7]);
        if (key == "application") return line_once.first(5) && read_text(json, application, rooms_[8]);
        if (key == "event_attributes") return line_once.first(6) && read_object(json, of_event);
        if (key == "query_attributes") return line_once.first(7) && read_object(json, of_query);
        return json.skip();
    };
    return json.object(of_line) && json.is_at_end() && query_id && !query_id->empty();
}

bool is_plain_id(std::string_view id) {
    if (id.empty()) return true;
    if (may_be_space(id) || may_be_space(last_character(id))) return false;
    if ((is_digit(id[0]) || id[0] == '-') && may_be_float(id)) return false;
    if (id.size() > LONGEST_MARK || FIRST_OF_MARKS.find(id[0]) == FIRST_OF_MARKS.npos) return true;
    return std::find(std::begin(MARKS_OF_NOTHING), std::end(MARKS_OF_NOTHING), id) == std::end(MARKS_OF_NOTHING);
}

bool is_utf8(std::string_view bytes) {
    const auto* at = reinterpret_cast<const uint8_t*>(bytes.data());
    const uint8_t* const end = at + bytes.size();
    while (at < end) {
        uint64_t eight;
        if (end - at >= 8 && (std::memcpy(&eight, at, 8), !(eight & 0x8080808080808080u))) {
            at += 8;
            continue;
        }
        const uint8_t lead = *at++;
        if (lead < 0x80) continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - at < more) return false;
        uint8_t least = 0x80, most = 0xBF;  // of the second byte
        if (lead == 0xE0) least = 0xA0;
        if (lead == 0xED) most = 0x9F;
        if (lead == 0xF0) least = 0x90;
        if (lead == 0xF4) most = 0x8F;
        if (*at < least || *at > most) return false;
        for (++at; --more; ++at) {
            if ((*at & 0xC0) != 0x80) return false;
        }
    }
    return true;
}

std::optional<int64_t> milliseconds_of(std::string_view text) {
    constexpr std::string_view FORM = "0000-00-00T00:00:00";
    if (text.size() <= FORM.size()) return std::nullopt;
    for (size_t i = 0; i < FORM.size(); ++i) {
        if (FORM[i] == '0' ? !is_digit(text[i]) : text[i] != FORM[i]) return std::nullopt;
    }
    const char* at = text.data();
    const int year = two_digits(at) * 100 + two_digits(at + 2), month = two_digits(at + 5), day = two_digits(at + 8);
    const int hour = two_digits(at + 11), minute = two_digits(at + 14), second = two_digits(at + 17);
    if (month < 1 || month > 12 || day < 1 || day > days_in_month(year, month)) return std::nullopt;
    if (hour > 23 || minute > 59 || second > 59) return std::nullopt;
    text.remove_prefix(FORM.size());
    int64_t fraction = 0;
    if (text[0] == '.') {
        size_t digits = 0;
        for (text.remove_prefix(1); !text.empty() && is_digit(text[0]); text.remove_prefix(1)) {
            if (++digits <= 3) fraction = fraction * 10 + (text[0] - '0');
        }
        if (!digits || digits > 6) return std::nullopt;
        for (; digits < 3; ++digits) fraction *= 10;
    }
    if (text != "Z" && text != "+00:00") return std::nullopt;
    if (year < 1990 || year > 2099) return std::nullopt;
    return ((days_since_1970(year, month, day) * 24 + hour) * 60 + minute) * 60000 + second * 1000 + fraction;
}
