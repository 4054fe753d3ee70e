#!/usr/bin/env bash
# lease_look: ends, for the lease's monitor, all runs that wait.
# usage: bash lease_look.sh BOX_HOME empty-queue
{
  # library: process run_state queue base

  empty_queue "$1" stop
  exit
}
