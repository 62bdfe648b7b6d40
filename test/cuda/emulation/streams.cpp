// The driver's streams, events and graphs.
#include "emulation/streams.h"

#include <chrono>
#include <set>
#include <utility>

#include "emulation/memory.h"

namespace emulation {

namespace {

using Clock = std::chrono::steady_clock;

struct Event {
  Clock::time_point at;
};

std::set<const Stream*> streams;
std::set<const Event*> events;

Result unknown(const char* what) { return refuse(kInvalidHandle, std::string("no such ") + what); }

}  // namespace

bool isStream(const Stream* stream) { return streams.contains(stream); }

Result enqueue(Stream* stream, Work work) {
  if (!isStream(stream)) return unknown("stream");
  if (stickyResult() != kSuccess) return stickyResult();
  if (!stream->capturing) return work();
  stream->captured.work.push_back(std::move(work));
  return kSuccess;
}

Result replay(Stream* stream, const Graph& graph) {
  for (const Work& work : graph.work) {
    if (const Result result = enqueue(stream, work); result != kSuccess) return result;
  }
  return kSuccess;
}

extern "C" {

int cuStreamCreate(Stream** stream, unsigned int) {
  *stream = new Stream;
  streams.insert(*stream);
  return kSuccess;
}

int cuStreamDestroy_v2(Stream* stream) {
  if (streams.erase(stream) == 0) return unknown("stream");
  delete stream;
  return kSuccess;
}

int cuStreamSynchronize(Stream* stream) {
  if (!isStream(stream)) return unknown("stream");
  if (stream->capturing) return refuse(kStreamCaptureInvalidated, "the stream is being captured");
  if (stickyResult() != kSuccess) return stickyResult();
  setSticky(checkDeviceMemory());
  return stickyResult();
}

int cuStreamWaitEvent(Stream* stream, const Event* event, unsigned int) {
  return isStream(stream) && events.contains(event) ? stickyResult() : unknown("stream or event");
}

int cuEventCreate(Event** event, unsigned int) {
  *event = new Event{Clock::now()};
  events.insert(*event);
  return kSuccess;
}

int cuEventDestroy_v2(Event* event) {
  if (events.erase(event) == 0) return unknown("event");
  delete event;
  return kSuccess;
}

int cuEventRecord(Event* event, Stream* stream) {
  if (!isStream(stream) || !events.contains(event)) return unknown("stream or event");
  event->at = Clock::now();
  return stickyResult();
}

int cuEventSynchronize(const Event* event) { return events.contains(event) ? stickyResult() : unknown("event"); }

int cuEventElapsedTime(float* ms, const Event* begin, const Event* end) {
  if (!events.contains(begin) || !events.contains(end)) return unknown("event");
  *ms = std::chrono::duration<float, std::milli>(end->at - begin->at).count();
  return kSuccess;
}

int cuStreamBeginCapture_v2(Stream* stream, int) {
  if (!isStream(stream)) return unknown("stream");
  if (stream->capturing) return refuse(kStreamCaptureInvalidated, "the stream is being captured");
  stream->capturing = true;
  return stickyResult();
}

int cuStreamEndCapture(Stream* stream, Graph** graph) {
  if (!isStream(stream) || !stream->capturing) return unknown("stream that is being captured");
  stream->capturing = false;
  *graph = new Graph(std::exchange(stream->captured, {}));
  return kSuccess;
}

int cuGraphInstantiateWithFlags(Graph** out, const Graph* graph, unsigned long long) {
  *out = new Graph(*graph);
  return kSuccess;
}

int cuGraphLaunch(const Graph* graph, Stream* stream) { return replay(stream, *graph); }

int cuGraphExecDestroy(Graph* graph) {
  delete graph;
  return kSuccess;
}

int cuGraphDestroy(Graph* graph) {
  delete graph;
  return kSuccess;
}
}

}  // namespace emulation
