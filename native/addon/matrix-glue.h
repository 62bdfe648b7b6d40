// Objects that JavaScript holds: the workspace, the weight arena and matrices in it.
#pragma once
#include <napi.h>

#include <memory>

#include "cpu/workspace.h"

namespace ds4 {

/// Memory from the operating system, zero-filled on first touch, huge pages where offered.
class Arena {
 public:
  /// Throws std::bad_alloc.
  explicit Arena(size_t bytes);
  ~Arena() { release(); }
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  /// Gives the memory back now, whoever still holds the arena. Harmless when repeated.
  void release();
  /// nullptr once released.
  uint8_t* data() const { return data_; }
  size_t bytes() const { return bytes_; }
  /// While above 0, other threads write into it and it must not be released. For the JavaScript thread.
  int writers = 0;

 private:
  uint8_t* data_;
  size_t bytes_;
};

/// JavaScript: new WeightArena(bytes); .bytes; .address; .close()
class WeightArenaObject : public Napi::ObjectWrap<WeightArenaObject> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit WeightArenaObject(const Napi::CallbackInfo& info);
  /// The open arena behind `value`, or a TypeError.
  static std::shared_ptr<Arena> unwrap(Napi::Env env, const Napi::Value& value);

 private:
  Napi::Value bytes(const Napi::CallbackInfo& info);
  Napi::Value address(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);
  std::shared_ptr<Arena> arena_;
};

/// JavaScript: new WeightMatrix(arena, offsetBytes, typeId, slices, rows, cols); .packRows(…); .unpackRow(…)
class WeightMatrixObject : public Napi::ObjectWrap<WeightMatrixObject> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit WeightMatrixObject(const Napi::CallbackInfo& info);
  /// The matrix behind `value`, or a TypeError. Valid while the JavaScript object lives.
  static const PackedMatrix& unwrap(Napi::Env env, const Napi::Value& value);
  /// The arena that it lies in.
  static std::shared_ptr<Arena> arenaOf(Napi::Env env, const Napi::Value& value);

 private:
  void checkOpen(Napi::Env env) const;
  void pack(const Napi::CallbackInfo& info);
  void unpack(const Napi::CallbackInfo& info);
  std::shared_ptr<Arena> arena_;
  PackedMatrix matrix_;
};

/// JavaScript: new Workspace(threads); .threads; .reserve(counts); .bytes; .close()
class WorkspaceObject : public Napi::ObjectWrap<WorkspaceObject> {
 public:
  static Napi::Function define(Napi::Env env);
  explicit WorkspaceObject(const Napi::CallbackInfo& info);
  /// The open workspace behind `value`, or a TypeError.
  static Workspace& unwrap(Napi::Env env, const Napi::Value& value);

 private:
  Napi::Value threads(const Napi::CallbackInfo& info);
  void reserve(const Napi::CallbackInfo& info);
  Napi::Value bytes(const Napi::CallbackInfo& info);
  void close(const Napi::CallbackInfo& info);
  std::unique_ptr<Workspace> workspace_;
};

}  // namespace ds4
