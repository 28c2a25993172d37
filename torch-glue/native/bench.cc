// SPDX-License-Identifier: Apache-2.0
// bench: pairs of a free and an allocation, through PyTorch's allocator interface and through seamalloc's own
// functions, for `seamalloc bench`. Compiled on the user's machine against the PyTorch in use
// (seamalloc/_bench.py). A cell keeps its live blocks between rounds, so that cells can take turns.
#include <algorithm>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAStream.h>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace
{

using Torch = c10::cuda::CUDACachingAllocator::CUDAAllocator;
using Malloc = void *(*)(size_t, int, cudaStream_t);
using Free = int (*)(void *);
using Clock = std::chrono::steady_clock;

enum Kind { RAW_ALLOC, ALLOCATE, DIRECT };

struct Worker {
    std::vector<void *> blocks;
    std::vector<c10::DataPtr> data;
    c10::cuda::CUDAStream stream = c10::cuda::getStreamFromPool(false, 0);
    uint64_t seed;
    Clock::time_point from, to;
    bool failed = false;
};

struct Cell {
    Kind kind;
    Torch *torch;
    Malloc get;
    Free put;
    size_t live; // each thread
    std::vector<Worker> workers;
};

// All threads begin at once.
class Start
{
  public:
    explicit Start(size_t count) : missing_(count)
    {
    }
    void wait()
    {
        std::unique_lock<std::mutex> lock(mutex_);
        if (--missing_ == 0)
            all_.notify_all();
        all_.wait(lock, [this] { return missing_ == 0; });
    }

  private:
    std::mutex mutex_;
    std::condition_variable all_;
    size_t missing_;
};

size_t size_of(size_t index)
{
    return 512 * (1 + index % 8);
}

void take(Cell &cell, Worker &worker, size_t at)
{
    if (cell.kind == RAW_ALLOC)
        worker.blocks[at] = cell.torch->raw_alloc(size_of(at));
    else if (cell.kind == DIRECT)
        worker.blocks[at] = cell.get(size_of(at), 0, worker.stream.stream());
    else
        worker.data[at] = cell.torch->allocate(size_of(at));
}

void give(Cell &cell, Worker &worker, size_t at)
{
    if (cell.kind == RAW_ALLOC)
        cell.torch->raw_delete(worker.blocks[at]);
    else if (cell.kind == DIRECT)
        cell.put(worker.blocks[at]);
    else
        worker.data[at].clear();
}

uint64_t draw(uint64_t &seed)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    return seed ^= seed << 17;
}

// Among `window` blocks that lie far apart; window 0: among all.
size_t choose(const Cell &cell, Worker &worker, size_t window)
{
    if (!window || window >= cell.live)
        return draw(worker.seed) % cell.live;
    return draw(worker.seed) % window * (cell.live / window);
}

void run_pairs(Cell &cell, Worker &worker, size_t pairs, size_t window, Start &start)
{
    c10::cuda::setCurrentCUDAStream(worker.stream);
    if (worker.blocks.empty() && worker.data.empty()) {
        if (cell.kind == ALLOCATE)
            worker.data.resize(cell.live);
        else
            worker.blocks.resize(cell.live);
        for (size_t at = 0; at < cell.live; at++)
            take(cell, worker, at);
    }
    start.wait();
    worker.from = Clock::now();
    for (size_t i = 0; i < pairs; i++) {
        size_t at = choose(cell, worker, window);
        give(cell, worker, at);
        take(cell, worker, at);
    }
    worker.to = Clock::now();
}

} // namespace

EXPORT void *seam_bench_allocator(void)
{
    return c10::cuda::CUDACachingAllocator::get();
}

EXPORT void seam_bench_init(void *allocator, int devices)
{
    static_cast<Torch *>(allocator)->init(devices);
}

EXPORT void *seam_bench_open(int kind, void *allocator, void *get, void *put, int threads, long live)
{
    auto *cell = new Cell{
        static_cast<Kind>(kind),     static_cast<Torch *>(allocator),     reinterpret_cast<Malloc>(get),
        reinterpret_cast<Free>(put), static_cast<size_t>(live / threads), {}};
    for (int i = 0; i < threads; i++) {
        cell->workers.emplace_back();
        cell->workers.back().seed = 88172645463325252u + static_cast<uint64_t>(i);
    }
    return cell;
}

// Nanoseconds of a thread for a pair, from when the first began until the last ended; below 0 when something
// failed.
EXPORT double seam_bench_round(void *opened, long pairs, long window)
{
    auto &cell = *static_cast<Cell *>(opened);
    std::vector<std::thread> threads;
    Start start(cell.workers.size());
    for (Worker &worker : cell.workers)
        threads.emplace_back([&cell, &worker, &start, pairs, window] {
            try {
                run_pairs(cell, worker, static_cast<size_t>(pairs), static_cast<size_t>(window), start);
            } catch (const std::exception &) {
                worker.failed = true;
                start.wait();
            }
        });
    for (std::thread &thread : threads)
        thread.join();
    Clock::time_point from = cell.workers[0].from, to = cell.workers[0].to;
    for (const Worker &worker : cell.workers) {
        if (worker.failed)
            return -1;
        from = std::min(from, worker.from);
        to = std::max(to, worker.to);
    }
    return std::chrono::duration<double, std::nano>(to - from).count() / static_cast<double>(pairs);
}

EXPORT void seam_bench_close(void *opened)
{
    auto *cell = static_cast<Cell *>(opened);
    for (Worker &worker : cell->workers)
        for (size_t at = 0; at < worker.blocks.size(); at++)
            give(*cell, worker, at);
    delete cell;
}
