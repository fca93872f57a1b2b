// What the report of an operation says about time: the control plane's own legs, and where the
// node's lie between them.

#include <algorithm>

#include "control/core/step_run.h"

namespace torpor::control::core {
namespace {

constexpr char kComponent[] = "control";
// Of the agent, which calls worker and mover.
constexpr char kNodeComponent[] = "node";
// An upload that is tried for days must not fill the record.
constexpr int kPhasesMax = 100;

bool Overlap(const torpor::v1::Phase& a, const torpor::v1::Phase& b) {
  return a.start_ms() <= b.start_ms() + b.duration_ms() &&
         b.start_ms() <= a.start_ms() + a.duration_ms();
}

// The agent's view of what a callee has recorded itself: one leg, told twice.
bool IsToldByCallee(const torpor::v1::Phase& phase, const torpor::v1::Operation& operation) {
  if (phase.component() != kNodeComponent) return false;
  return std::any_of(operation.phases().begin(), operation.phases().end(),
                     [&](const torpor::v1::Phase& other) {
                       return other.component() != kNodeComponent && other.name() == phase.name() &&
                              Overlap(phase, other);
                     });
}

}  // namespace

WallTime StepRun::Time() const {
  return context_.clock == nullptr ? context_.now : context_.clock->WallNow();
}

double StepRun::SinceStart(WallTime time) const {
  return std::max(0.0, ToMs(time - FromProto(record_.operation().start_time())));
}

torpor::v1::Phase& StepRun::AddLeg(const std::string& name, WallTime from, WallTime to) {
  torpor::v1::Phase& phase = *record_.mutable_operation()->add_phases();
  phase.set_name(name);
  phase.set_component(kComponent);
  phase.set_start_ms(SinceStart(from));
  // Wall time may be set back meanwhile.
  phase.set_duration_ms(std::max(0.0, SinceStart(to) - phase.start_ms()));
  return phase;
}

void StepRun::OpenLeg(const std::string& name, WallTime from) {
  AddLeg(name, from, Time());
  record_.mutable_operation()->set_open_leg(true);
}

void StepRun::AddPhases(const torpor::v1::NodeCall& call, const torpor::v1::Operation& operation,
                        const CallAnswer& answer) {
  torpor::v1::ActorOperation& own = *record_.mutable_operation();
  const bool known = answer.dispatched != WallTime{};
  const double sent = SinceStart(known ? answer.dispatched : FromProto(call.sent_time()));
  if (own.open_leg()) {
    torpor::v1::Phase& leg = *own.mutable_phases()->rbegin();
    leg.set_duration_ms(std::max(leg.duration_ms(), sent - leg.start_ms()));
    own.clear_open_leg();
  }
  for (torpor::v1::Phase phase : operation.phases()) {
    if (own.phases_size() >= kPhasesMax || IsToldByCallee(phase, operation)) continue;
    phase.set_start_ms(phase.start_ms() + sent);
    *own.add_phases() = std::move(phase);
  }
  // A stop has no phases of its own.
  if (call.has_stop() && own.phases_size() < kPhasesMax)
    AddLeg("terminate", known ? answer.dispatched : received_, received_);
}

}  // namespace torpor::control::core
