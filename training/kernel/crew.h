// Threads that share out the parts of a call: whoever is free takes the next one, so no part waits for a thread whose
// core another process holds.
//
// An update is a dozen calls of a fraction of a millisecond. Between two of them threads look for work for a moment
// before they sleep: to wake one can take as long as its part.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

class Crew {
  public:
    // The thread that calls `share_out` is one of them.
    explicit Crew(int32_t num_threads) {
        for (int32_t other = 1; other < num_threads; ++other) others_.emplace_back([this] { work(); });
    }
    ~Crew() {
        {
            const std::lock_guard<std::mutex> held(mutex_);
            ended_ = true;
            ++round_;
        }
        wake_.notify_all();
        for (std::thread& other : others_) other.join();
    }

    // part(i) for each i below `count`, in any order. Throws std::bad_alloc once all are done, if one of them did.
    template <class Part>
    void share_out(int64_t count, const Part& part) {
        {
            const std::lock_guard<std::mutex> held(mutex_);
            call_ = [](const void* of, int64_t i) { (*static_cast<const Part*>(of))(i); };
            part_ = &part;
            count_ = count;
            next_ = 0;
            full_ = false;
            open_ = true;
            ++round_;
        }
        wake_.notify_all();
        take();
        const auto held = locked_when([this] { return busy_ == 0; }, done_);
        open_ = false;  // a thread that wakes only now must not touch `part`
        if (full_) throw std::bad_alloc();
    }

  private:
    static constexpr int LOOKS = 200;  // about 50 microseconds

    template <class Ready>
    std::unique_lock<std::mutex> locked_when(const Ready& ready, std::condition_variable& told) {
        for (int look = 0; look < LOOKS && !ready(); ++look) std::this_thread::yield();
        std::unique_lock<std::mutex> held(mutex_);
        told.wait(held, ready);
        return held;
    }

    void work() {
        for (uint64_t seen = 0;;) {
            {
                const auto held = locked_when([&] { return round_ != seen; }, wake_);
                if (ended_) return;
                seen = round_;
                if (!open_) continue;
                ++busy_;
            }
            take();
            {
                const std::lock_guard<std::mutex> held(mutex_);
                --busy_;
            }
            done_.notify_one();
        }
    }

    void take() {
        for (int64_t i; (i = next_++) < count_;) {
            try {
                call_(part_, i);
            } catch (const std::bad_alloc&) {
                full_ = true;
            }
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_, done_;
    // Changed with the mutex held; these two are looked at without it.
    std::atomic<uint64_t> round_{0};
    std::atomic<int32_t> busy_{0};
    bool open_ = false, ended_ = false;
    // Of the round.
    void (*call_)(const void*, int64_t) = nullptr;
    const void* part_ = nullptr;
    int64_t count_ = 0;
    std::atomic<int64_t> next_{0};
    std::atomic<bool> full_{false};

    std::vector<std::thread> others_;  // last: they start when all else is there
};
