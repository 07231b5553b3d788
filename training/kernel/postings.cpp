// The best titles for the words of a query, and the scores of some titles (training/ranking/bm25.py), by what each word
// adds to the score of those that have it.
//
// Titles are taken a window at a time, so that their sums stay in the nearest cache. Words that together cannot lift a
// title to the k-th best score are left out of the sums and looked up only for the titles that the other words lift far
// enough (MaxScore: Turtle and Flood, 1995). That is decided by sums in any order, with an allowance for their rounding;
// a score itself is added up in the order of the words, so it is the sum that NumPy makes.
//
// Even if the entries are those of a damaged file, in no order, nothing is read or written out of bounds.
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <vector>

#include "interface.h"

constexpr uint32_t WINDOW_TITLES = 4096;
constexpr int64_t DENSE = WINDOW_TITLES / 8;  // entries of a window from which on every title's sum is compared
constexpr uint32_t GROUP = 16;                // sums that are compared at once
constexpr double FIND = 16;                   // entries that are passed in the time in which a title's is found
constexpr float LEAST = std::numeric_limits<float>::denorm_min();  // a part is above 0

// The first entry from `low` on whose title is not below `title`; usually it is near.
static int64_t entry_of(const int32_t* titles, int64_t low, int64_t end, int32_t title) {
    int64_t step = 1;
    for (; step <= end - low && titles[low + step - 1] < title; step *= 2) low += step;
    return std::lower_bound(titles + low, titles + std::min(low + step, end), title) - titles;
}

// What a title adds for a word, 0 if it does not have it. `from` moves on to it.
static float part_of(const Postings& postings, int64_t& from, int64_t end, int32_t title) {
    from = entry_of(postings.titles, from, end, title);
    return from < end && postings.titles[from] == title ? postings.parts[from] : 0;
}

namespace {

class Search {
  public:
    Search(const Postings& postings, const QueryWords& words, int64_t k, float* heap, int32_t* titles, float* scores)
        : postings_(postings), words_(words), k_(k), heap_(heap), titles_(titles), scores_(scores),
          rounding_(1 + static_cast<double>(words.num_words) * std::numeric_limits<float>::epsilon()),
          sums_(WINDOW_TITLES), at_(words.starts, words.starts + words.num_words), next_(at_),
          is_added_(words.num_words, true), by_largest_(words.num_words), candidates_(WINDOW_TITLES + 1) {
        int32_t last = 0;
        for (int64_t word = 0; word < words.num_words; ++word)
            if (words.starts[word] < words.ends[word]) last = std::max(last, postings.titles[words.ends[word] - 1]);
        num_windows_ = 1.0 + last / static_cast<double>(WINDOW_TITLES);
        std::iota(by_largest_.begin(), by_largest_.end(), 0);
        std::sort(by_largest_.begin(), by_largest_.end(),
                  [&](int64_t a, int64_t b) { return words.largest[a] < words.largest[b]; });
    }

    int64_t best() {
        while (enter_window()) {
            add_up();
            if (num_left_out_ == 0) {
                collect(floor_);
                for (int64_t i = 0; i < num_candidates_; ++i) rank(candidates_[i].title, candidates_[i].sum);
            } else {
                const float limit = static_cast<float>(floor_ / rounding_ - left_out_);
                collect(std::max(LEAST, std::nextafter(limit, 0.0f)));
                if (num_candidates_ > 0) look_up();
            }
            at_ = next_;
            leave_out();
        }
        int64_t kept = 0;  // the floor has risen since
        for (int64_t i = 0; i < num_ranked_; ++i)
            if (scores_[i] >= floor_) {
                titles_[kept] = titles_[i];
                scores_[kept++] = scores_[i];
            }
        return kept;
    }

  private:
    struct Candidate {
        int32_t title;
        float sum;  // of the words so far, in any order
    };

    // The next window begins with the lowest title that is left; false if there is none.
    bool enter_window() {
        bool is_left = false;
        int32_t first = std::numeric_limits<int32_t>::max();
        for (int64_t word = 0; word < words_.num_words; ++word)
            if (is_added_[word] && at_[word] < words_.ends[word]) {
                first = std::min(first, postings_.titles[at_[word]]);
                is_left = true;
            }
        first_ = static_cast<uint32_t>(first);
        return is_left;
    }

    // An entry's place in the window; WINDOW_TITLES or more if its title is not in it.
    uint32_t place(int64_t entry) const { return static_cast<uint32_t>(postings_.titles[entry]) - first_; }

    void add_up() {
        num_added_ = 0;
        for (int64_t word = 0; word < words_.num_words; ++word) {
            if (!is_added_[word]) continue;
            int64_t entry = at_[word];
            for (; entry < words_.ends[word] && place(entry) < WINDOW_TITLES; ++entry)
                sums_[place(entry)] += postings_.parts[entry];
            num_added_ += entry - at_[word];
            next_[word] = entry;
        }
    }

    // The candidates: the titles of the window whose sum is not below a limit above 0. The sums are 0 afterwards.
    void collect(float limit) {
        num_candidates_ = 0;
        if (num_added_ < DENSE) {
            for (int64_t word = 0; word < words_.num_words; ++word) {
                if (!is_added_[word]) continue;
                for (int64_t entry = at_[word]; entry < next_[word]; ++entry) {
                    float& sum = sums_[place(entry)];
                    collect(postings_.titles[entry], sum, limit);
                    sum = 0;  // so that a title is collected once
                }
            }
            return;
        }
        for (uint32_t group = 0; group < WINDOW_TITLES; group += GROUP) {
            bool any = false;
            for (uint32_t here = group; here < group + GROUP; ++here) any |= sums_[here] >= limit;
            if (!any) continue;
            for (uint32_t here = group; here < group + GROUP; ++here)
                collect(static_cast<int32_t>(first_ + here), sums_[here], limit);
        }
        std::fill(sums_.begin(), sums_.end(), 0.0f);
    }

    void collect(int32_t title, float sum, float limit) {  // without a branch, which no processor foresees
        candidates_[num_candidates_] = {title, sum};
        num_candidates_ += sum >= limit;
    }

    // Ranks the candidates by all words.
    void look_up() {
        const auto is_before = [](const Candidate& a, const Candidate& b) { return a.title < b.title; };
        const auto begin = candidates_.begin(), end = begin + num_candidates_;
        if (!std::is_sorted(begin, end, is_before)) std::sort(begin, end, is_before);
        from_ = at_;
        double rest = left_out_;
        for (int64_t i = num_left_out_; i-- > 0;) {  // the largest part first
            const int64_t word = by_largest_[i], last = words_.ends[word];
            int64_t& next = next_[word];
            rest -= words_.largest[word];
            const double in_window = static_cast<double>(last - words_.starts[word]) / num_windows_;
            if (static_cast<double>(num_candidates_) * FIND < in_window) {
                keep_candidates(rest, [&](int32_t title) { return part_of(postings_, next, last, title); });
            } else {
                next = entry_of(postings_.titles, next, last, static_cast<int32_t>(first_));
                for (; next < last && place(next) < WINDOW_TITLES; ++next) sums_[place(next)] = postings_.parts[next];
                keep_candidates(rest, [&](int32_t title) { return sums_[static_cast<uint32_t>(title) - first_]; });
                std::fill(sums_.begin(), sums_.end(), 0.0f);
            }
        }
        for (int64_t i = 0; i < num_candidates_; ++i) {
            float score = 0;
            for (int64_t word = 0; word < words_.num_words; ++word)
                score += part_of(postings_, from_[word], words_.ends[word], candidates_[i].title);
            rank(candidates_[i].title, score);
        }
    }

    // Adds a word's parts to the candidates' sums, and keeps those that the rest of the words can lift to the floor.
    template <class Part> void keep_candidates(double rest, Part part) {
        int64_t num_kept = 0;
        for (int64_t i = 0; i < num_candidates_; ++i) {
            const Candidate candidate = {candidates_[i].title, candidates_[i].sum + part(candidates_[i].title)};
            candidates_[num_kept] = candidate;
            num_kept += (candidate.sum + rest) * rounding_ >= floor_;
        }
        num_candidates_ = num_kept;
    }

    void rank(int32_t title, float score) {
        if (!(score >= floor_)) return;
        titles_[num_ranked_] = title;
        scores_[num_ranked_++] = score;
        if (num_held_ < k_) {
            heap_[num_held_++] = score;
        } else if (score > floor_) {
            std::pop_heap(heap_, heap_ + k_, std::greater<float>());
            heap_[k_ - 1] = score;
        } else {
            return;
        }
        std::push_heap(heap_, heap_ + num_held_, std::greater<float>());
        if (num_held_ == k_) floor_ = heap_[0];
    }

    // Chooses the words that are not added up in the windows that come.
    void leave_out() {
        if (num_held_ < k_) return;
        for (; num_left_out_ < words_.num_words; ++num_left_out_) {
            const int64_t word = by_largest_[num_left_out_];
            if ((left_out_ + words_.largest[word]) * rounding_ >= floor_) return;
            left_out_ += words_.largest[word];
            is_added_[word] = false;
        }
    }

    const Postings& postings_;
    const QueryWords& words_;
    const int64_t k_;
    float* const heap_;      // the k largest scores so far, the least on top
    int32_t* const titles_;  // that may be among the k best
    float* const scores_;
    int64_t num_held_ = 0, num_ranked_ = 0;
    float floor_ = LEAST;    // the k-th largest score so far
    const double rounding_;  // at least the factor by which two sums of the same parts can differ
    double num_windows_;     // from the first title to the last

    uint32_t first_ = 0;  // the window's first title
    int64_t num_added_ = 0;  // entries in the window
    std::vector<float> sums_;
    std::vector<int64_t> at_, next_, from_;  // each word's first entry in the window, the one after the last, any between
    std::vector<bool> is_added_;
    std::vector<int64_t> by_largest_;  // the words by their largest part, ascending; the first are left out
    int64_t num_left_out_ = 0;
    double left_out_ = 0;  // the sum of their largest parts
    std::vector<Candidate> candidates_;
    int64_t num_candidates_ = 0;
};

}  // namespace

extern "C" int64_t postings_best(const Postings* postings, const QueryWords* words, int64_t k, float* heap,
                                 int32_t* titles, float* scores) {
    return unless_full<int64_t>(-1, [&] { return Search(*postings, *words, k, heap, titles, scores).best(); });
}

extern "C" void postings_scores(const Postings* postings, const QueryWords* words, const int32_t* titles,
                                int64_t num_titles, float* scores) {
    std::fill(scores, scores + num_titles, 0.0f);
    for (int64_t word = 0; word < words->num_words; ++word) {
        int64_t from = words->starts[word];
        for (int64_t i = 0; i < num_titles; ++i) {
            if (i > 0 && titles[i] < titles[i - 1]) from = words->starts[word];
            scores[i] += part_of(*postings, from, words->ends[word], titles[i]);
        }
    }
}
