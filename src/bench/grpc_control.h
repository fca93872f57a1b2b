#pragma once
// ActorControl over the public API of a running Torpor, and the template that the actors are of.

#include <memory>
#include <string>

#include "ateapi/ateapi.grpc.pb.h"
#include "bench/actor_control.h"
#include "bench/scenario.h"
#include "torpor/v1/ops.grpc.pb.h"

namespace torpor::bench {

// Where the actors' HTTP server listens, and what it answers when it is ready.
inline constexpr int kActorPort = 80;
inline constexpr char kProbePath[] = "/readyz";
inline constexpr char kContainer[] = "main";
inline constexpr char kAtespace[] = "benchmark-workloads";

class GrpcControl : public ActorControl {
 public:
  struct Options {
    std::string endpoint;  // host:port or unix:PATH
    std::string token;
    std::string template_name;
    Duration call_limit = std::chrono::seconds(120);
  };
  explicit GrpcControl(Options options);

  // Atespace and template; returns when the golden snapshot is there. `image` is NAME@DIGEST.
  Status MakeTemplate(const Scenario& scenario, const std::string& image, bool golden);
  Status DeleteTemplate();

  Outcome Create(const std::string& actor) override;
  Outcome Resume(const std::string& actor, ActorView* view) override;
  Outcome Pause(const std::string& actor, ActorView* view) override;
  Outcome Suspend(const std::string& actor, ActorView* view) override;
  Outcome Delete(const std::string& actor) override;
  std::vector<torpor::v1::Phase> PhasesOfLastWake(const std::string& actor) override;
  bool IsCrashed(const std::string& actor) override;

 private:
  template <typename Request, typename Response>
  Outcome Call(grpc::Status (ateapi::Control::Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
               const Request& request, Response* response);
  template <typename Request, typename Response>
  Outcome Lifecycle(grpc::Status (ateapi::Control::Stub::*method)(grpc::ClientContext*,
                                                                  const Request&, Response*),
                    torpor::v1::Verb verb, const std::string& actor, ActorView* view);
  std::vector<torpor::v1::Phase> Explain(const std::string& actor, torpor::v1::Verb verb,
                                         const std::string& op_id);
  Status WaitForGolden();

  const Options options_;
  std::unique_ptr<ateapi::Control::Stub> control_;
  std::unique_ptr<torpor::v1::Ops::Stub> ops_;
};

}  // namespace torpor::bench
