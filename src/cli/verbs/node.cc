// torpor node status|drain|uncordon

#include <unistd.h>

#include <cstdio>

#include <CLI/CLI.hpp>

#include "cli/output.h"
#include "cli/verbs/print.h"
#include "cli/verbs/verbs.h"

namespace torpor::cli {
namespace {

using Ops = torpor::v1::Ops::StubInterface::async_interface;
using torpor::v1::Node;

constexpr Duration kDrainLook = std::chrono::milliseconds(500);

StatusOr<torpor::v1::ListNodesResponse> ListNodes(Session& session) {
  torpor::v1::ListNodesResponse response;
  RETURN_IF_ERROR(session.Call(&Ops::ListNodes, torpor::v1::ListNodesRequest(), &response));
  return response;
}

StatusOr<Node> GetNode(Session& session, const std::string& name) {
  torpor::v1::GetNodeRequest request;
  request.set_name(name);
  Node node;
  RETURN_IF_ERROR(session.Call(&Ops::GetNode, request, &node));
  return node;
}

Status ShowStatus(Session& session, const std::string& name) {
  ResourcePrinter printer(session);
  if (!name.empty()) {
    ASSIGN_OR_RETURN(Node node, GetNode(session, name));
    return printer.Print({&node}, false, false);
  }
  ASSIGN_OR_RETURN(auto nodes, ListNodes(session));
  std::vector<const google::protobuf::Message*> items;
  for (const Node& node : nodes.nodes()) items.push_back(&node);
  return printer.Print(items, true, false);
}

// The machine's own node may be left out when there is no other.
StatusOr<std::string> NameOrOnly(Session& session, const std::string& name) {
  if (!name.empty()) return name;
  ASSIGN_OR_RETURN(auto nodes, ListNodes(session));
  if (nodes.nodes_size() == 1) return nodes.nodes(0).name();
  return Error(Code::kInvalidArgument, "FIELD_INVALID",
               fmt::format("there are {} nodes; say which one, torpor node status lists them",
                           nodes.nodes_size()));
}

std::string Progress(const Node& node) {
  return fmt::format("{} running, {} only on this node", node.running_actors(), node.only_here());
}

// Until nothing of an actor is only there any more.
Status WaitDrained(Session& session, Node node) {
  ASSIGN_OR_RETURN(Duration timeout, session.Timeout(std::chrono::minutes(30)));
  const MonotonicTime until = Clock::Real()->Now() + timeout;
  const bool terminal = isatty(STDERR_FILENO) != 0 && !session.settings().quiet;
  while (node.state() != Node::STATE_DRAINED) {
    if (node.state() != Node::STATE_DRAINING) {
      return Error(
          Code::kAborted, "SUPERSEDED",
          fmt::format("node {} is not draining any more; somebody put it back", node.name()));
    }
    if (Clock::Real()->Now() >= until) {
      return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                   fmt::format("node {} is still draining: {}; it goes on, see torpor node status",
                               node.name(), Progress(node)));
    }
    if (terminal) fprintf(stderr, "\r\033[Kdraining: %s", Progress(node).c_str());
    if (!SleepUnlessInterrupted(kDrainLook)) {
      if (terminal) fprintf(stderr, "\n");
      return Error(Code::kCancelled, "CANCELLED",
                   "stopped waiting; the drain goes on, see torpor node status");
    }
    ASSIGN_OR_RETURN(node, GetNode(session, node.name()));
  }
  if (terminal) fprintf(stderr, "\r\033[K");
  return OkStatus();
}

Status Drain(Session& session, const std::string& asked, const std::string& mode, bool wait) {
  ASSIGN_OR_RETURN(std::string name, NameOrOnly(session, asked));
  torpor::v1::DrainNodeRequest request;
  request.set_name(name);
  request.set_mode(mode == "cordon" ? torpor::v1::DrainNodeRequest::MODE_CORDON
                                    : torpor::v1::DrainNodeRequest::MODE_SUSPEND);
  Node node;
  RETURN_IF_ERROR(session.Call(&Ops::DrainNode, request, &node));
  if (mode != "cordon" && wait) {
    RETURN_IF_ERROR(WaitDrained(session, node));
    ASSIGN_OR_RETURN(node, GetNode(session, name));
  }
  if (session.settings().output == "json") {
    ASSIGN_OR_RETURN(std::string text, ToJson(node));
    printf("%s\n", text.c_str());
  } else if (!session.settings().quiet) {
    printf("node %s is %s: %s\n", name.c_str(),
           EnumName(Node::State_Name(node.state()), "STATE_").c_str(), Progress(node).c_str());
  }
  return OkStatus();
}

Status Uncordon(Session& session, const std::string& asked) {
  ASSIGN_OR_RETURN(std::string name, NameOrOnly(session, asked));
  torpor::v1::DrainNodeRequest request;
  request.set_name(name);
  request.set_cancel(true);
  Node node;
  RETURN_IF_ERROR(session.Call(&Ops::DrainNode, request, &node));
  if (!session.settings().quiet) {
    printf("node %s is %s\n", name.c_str(),
           EnumName(Node::State_Name(node.state()), "STATE_").c_str());
  }
  return OkStatus();
}

}  // namespace

void AddNode(CLI::App& app, Invocation& invocation) {
  auto* node = app.add_subcommand("node", "see and empty machines");
  node->require_subcommand(1);
  node->fallthrough();
  auto name = std::make_shared<std::string>();
  constexpr char kName[] = "the node (default the only one)";

  auto* status = node->add_subcommand("status", "state, actors and disk of nodes");
  status->add_option("NODE", *name, "only this one");
  status->callback([&invocation, name] {
    invocation.run = [name](Session& session) { return Report(ShowStatus(session, *name)); };
  });

  auto* drain = node->add_subcommand(
      "drain", "no new actors; running ones are suspended, paused ones uploaded");
  auto mode = std::make_shared<std::string>("suspend");
  auto wait = std::make_shared<bool>(true);
  drain->add_option("NODE", *name, kName);
  drain->add_option("--mode", *mode, "suspend; or cordon: running actors stay")
      ->check(CLI::IsMember({"suspend", "cordon"}));
  drain->add_option("--wait", *wait, "false: return when the drain has begun");
  drain->callback([&invocation, name, mode, wait] {
    invocation.run = [name, mode, wait](Session& session) {
      return Report(Drain(session, *name, *mode, *wait));
    };
  });

  auto* uncordon = node->add_subcommand("uncordon", "end a drain: the node takes actors again");
  uncordon->add_option("NODE", *name, kName);
  uncordon->callback([&invocation, name] {
    invocation.run = [name](Session& session) { return Report(Uncordon(session, *name)); };
  });
}

}  // namespace torpor::cli
